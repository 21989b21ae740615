"""Measures on a GPU (or a CPU) what a job's graph needs, and writes records. PyTorch is imported only where something is run."""
