"""Seconds of every kernel and every call of a workload."""
