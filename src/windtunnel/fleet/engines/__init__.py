"""Who starts agents: local processes, Slurm, Ray; and manifests for Kubernetes. No scheduler of our own."""
