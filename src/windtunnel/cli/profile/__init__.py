"""Kernel times of a GPU: measure or import them, fit kernel models, and evaluate their transfer to other GPUs."""
