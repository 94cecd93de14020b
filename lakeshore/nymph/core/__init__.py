"""What the daemon decides: no I/O, clock or chance. `Core.handle(event, now)` gives the instructions that follow."""
