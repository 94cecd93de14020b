"""The JSON API of a control plane, for the CLI and the TUI."""
