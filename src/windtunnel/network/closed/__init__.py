"""Collectives in closed form: NCCL's choice, and the seconds that it takes on a group's links."""
