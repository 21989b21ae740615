"""Measures on a GPU what a job's graph needs, and takes in what others measured: both become datasets of `records/`."""
