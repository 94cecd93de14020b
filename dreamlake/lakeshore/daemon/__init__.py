"""The worker's stable spelling: `python -m dreamlake.lakeshore.daemon`."""
