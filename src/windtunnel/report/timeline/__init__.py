"""Timelines for trace viewers."""
