"""What a command of the one file takes, from fork to exit."""
