"""Engines that start agents: local processes, Slurm, Ray; manifests for Kubernetes. None of them schedules jobs."""
