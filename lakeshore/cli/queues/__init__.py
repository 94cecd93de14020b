"""The commands of `lakeshore queues`."""
