"""Measures the kernels and layers of a job on a GPU or a CPU, and imports published measurements. Both become datasets."""
