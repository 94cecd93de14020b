"""Where invocation rows and frames live: the dispatch contract over SQLite and files.

A verb is a function of (transaction, arguments, now): it makes no ids, reads no clock and decides nothing twice.
`contract` names what goes in and out, `plane` opens a plane and commits, and every other module owns one noun.
"""
