"""`lakeshore nymph`, the daemon itself, and its releases."""
