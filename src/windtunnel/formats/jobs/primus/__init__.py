"""Primus experiments, and the files that they name."""
