"""The commands of `lakeshore admin`."""
