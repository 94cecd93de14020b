"""What turns a new machine into a daemon of this server: a script, rendered for each of them."""
