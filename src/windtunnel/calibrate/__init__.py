"""Fits of every constant that rests on measurements, and how well each holds on what it did not see.

Kernels of one GPU, curves shared by GPUs, collectives, host costs and training factors; `windtunnel fit` is the door.
"""
