"""The commands of `lakeshore ssh`."""
