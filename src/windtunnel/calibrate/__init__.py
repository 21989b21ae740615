"""Fits of all constants that rest on measurements, with errors on held-out data.

Kernels of one GPU, curves shared by GPUs, collectives, host costs and training factors; the command is `windtunnel fit`.
"""
