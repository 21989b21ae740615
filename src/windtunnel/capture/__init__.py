"""Runs an unedited training script on a cluster that isn't there, and records what it does.

The script runs on this machine's CPU, one process for each rank that differs. Its `cuda` device has no storage, its groups move
nothing, and `torch.cuda` answers as the cluster's GPU would. What remains are the framework's own operators, calls, allocations and
waits, in their order.
"""
