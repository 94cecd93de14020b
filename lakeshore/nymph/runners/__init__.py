"""Where an invocation runs: one module a kind. Reference: nymph/daemons.md, "Runners"."""
