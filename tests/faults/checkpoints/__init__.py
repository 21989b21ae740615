"""Faults put into real saves and loads: `python -m tests.faults.checkpoints --case F2 --count 50`. The short cut: `--short`."""
