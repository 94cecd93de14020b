"""What a plane must do, as cases that any plane can be put through. Needs no test framework."""
