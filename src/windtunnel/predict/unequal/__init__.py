"""Ranks that are not equal: which replicas differ, what each takes, and who waits for whom."""
