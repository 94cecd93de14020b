"""The commands of `lakeshore providers`."""
