"""The elasticity controller: it launches and ends the daemons of queues that ask for it.

    spec.py units.py      what queues say, and which of them are one
    view.py               what there is: daemons, calls, launches under way
    policy.py             what to do about it: one decision a look
    wanted.py culling.py  which daemon is launched, and which goes
    tracker.py backoff.py what was begun, and what failed
    folding.py            decisions as rows
    controller.py         the loop over all of them
    settings.py           when it runs

All but the last two and `view` are pure.
Reference: get-started/elasticity, get-started/scaling-rules; S-508…S-537.
"""
