"""Checkpoints in the memory of a node: buffers that processes share, copies into them, and those of a neighbour."""
