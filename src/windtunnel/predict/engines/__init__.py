"""Calls of a step over a network engine, flow or packet."""
