"""The commands of `lakeshore code`."""
