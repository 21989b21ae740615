"""Watched runs: observed sections beside those that a prediction or an earlier run expects."""
