"""What runs as a process of its own: the queue worker (`worker`)."""
