"""Kernels of inference engines, fitted on the datasets of `windtunnel import aiconfigurator`."""
