"""The commands of `lakeshore storage`."""
