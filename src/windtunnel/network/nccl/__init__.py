"""NCCL as data and arithmetic: environment variables, tuner tables, channels, and the selection."""
