"""What makes machines for daemons: one module a kind of provider, all behind `contract.Launcher`."""
