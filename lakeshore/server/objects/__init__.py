"""Object stores, as the storages of a namespace name them: URLs and keys for others, buckets made and deleted."""
