"""Runs of lanes over the flow and the packet engine, on a cluster's link graph."""
