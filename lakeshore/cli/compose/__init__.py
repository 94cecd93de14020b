"""`lakeshore.yaml` on the command line: `lakeshore up`, `down`, `ps`, `status`, `logs`."""
