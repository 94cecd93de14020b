"""The commands of `lakeshore tunnels`."""
