"""Files that windtunnel writes: jobs, models, clusters, runs, trace graphs and datasets."""
