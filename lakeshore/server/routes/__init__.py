"""One file per resource: parse, call one service, render. `table.py` is the list of them all."""
