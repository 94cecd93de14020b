"""What a daemon on a host costs and does, beside ssh and HyperQueue on the same no-op."""
