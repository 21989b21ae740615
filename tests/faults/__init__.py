"""Faults put into real jobs of real processes, and what is said of them. `make fleet-faults` runs all; docs/faults.md has the
counts.

Ranks are processes on this machine that talk over gloo on loopback, or between network namespaces. Two cores cannot compute for
sixteen ranks, so that the work of a device is played by many short sleeps: it takes its time, stops when the process is stopped,
and needs no core.
"""
