"""Collectives as lanes: streams of slices between ranks that wait for each other, which every engine runs."""
