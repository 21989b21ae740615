"""Paths that are not local: places in a store that fsspec opens."""
