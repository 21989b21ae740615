"""Runs a trace graph on a cluster: its dependencies, streams and groups as written, its calls over our network."""
