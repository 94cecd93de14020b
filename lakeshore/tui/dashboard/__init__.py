"""`lakeshore tui`: the fleet of one namespace, watched and acted on. Nothing is imported here.

`columns.py`, `actions.py` and `tabs.py` say what there is, `view.py` which of it is shown, `reading.py` and `window.py`
what is asked of the server, `listing.py` and `chrome.py` draw it, `app.py` has the keys.
"""
