"""NCCL as data and arithmetic: its variables, its tuner's tables, its channels and its choice."""
