"""`lakeshore exec` and `lakeshore run`: a command or a script on a daemon."""
