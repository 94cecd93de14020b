"""What stands below the keeper for a job whose work is elsewhere: in a container, on a cluster, in a pod."""
