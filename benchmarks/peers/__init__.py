"""One module per peer, run by the interpreter of the peers' environment. The keys are those of `ours`."""
