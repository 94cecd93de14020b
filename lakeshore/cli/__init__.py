"""The operator's commands. One file a group: parse, one call of the client, one rendering."""
