"""What this machine knows of clouds and clusters: files and tools of AWS, Google Cloud, SLURM, Kubernetes, Docker."""
