"""`lakeshore tui` beside a large fleet that does not rest."""
