"""Measures on a GPU (or a CPU) what a job's graph needs, and takes in what others measured: both become datasets."""
