"""Collectives in closed form: NCCL's choice, and its seconds on a group's links."""
