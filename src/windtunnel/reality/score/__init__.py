"""Predictions beside measurements: one score a measured quantity, with summaries by family."""
