"""Faults put into jobs that a driver keeps alive: real processes of gloo, two nodes of two ranks, and what became of them."""
