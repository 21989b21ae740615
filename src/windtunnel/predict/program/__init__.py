"""What the engine runs: a workload and its costs as instances of templates, transfers and calls."""
