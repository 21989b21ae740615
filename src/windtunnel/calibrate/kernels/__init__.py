"""Fits constants of one GPU's kernels to measured rows, by class, with errors on held-out rows."""
