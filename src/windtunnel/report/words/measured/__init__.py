"""Measured runs in words."""
