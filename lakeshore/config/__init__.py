"""Configuration files: where they lie, how they are read, what is wrong with them."""
