"""The commands of `lakeshore daemon`."""
