"""Lower bounds of step time and memory for whole columns of plans."""
