"""Programs that other processes start by module name: the worker and its guardian."""
