"""Checkpoint files and token files of one node: how fast its file system takes and gives them."""
