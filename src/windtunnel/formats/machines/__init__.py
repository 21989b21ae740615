"""Facts about machines: hardware listings, NCCL files and logs, micro-benchmarks, accounting tables."""
