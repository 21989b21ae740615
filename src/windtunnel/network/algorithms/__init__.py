"""Algorithms of collectives, one file each; `network/algorithm.py` lists them."""
