"""Measures stacks of layers, their sub-modules and kernels, and a full step."""
