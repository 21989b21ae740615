"""The engine's program: a workload and its costs as instances of templates, transfers and calls."""
