"""Shell completion: the command tree as a script for each shell, and the names that only a server or a file knows."""
