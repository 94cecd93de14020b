"""The commands of `lakeshore jobs`."""
