"""`lakeshore demo`: the main job, on real text, with real processes, in half a minute.

functions.py  what the workers run      corpus.py  which text      stage.py  the processes      driver.py  the show
"""
