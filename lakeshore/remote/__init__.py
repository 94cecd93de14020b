"""Hosts that are reached by ssh: what is run there, what is copied there, and what is remembered of it here."""
