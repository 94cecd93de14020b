"""The host's daemon: it holds leases and renews them, has jobs, commands and scripts run, and tells how they ended.

`core` decides and does nothing; whoever owns sockets, processes and clocks tells it what happened (`events`) and does
what it says (`instructions`). Reference: nymph/daemons, nymph/protocol; CONTRACT K-5…K-15, K-27, K-28, K-34.
"""
