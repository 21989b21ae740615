"""Measured runs: what their steps went to, compared with a prediction, calibrated, and changed."""
