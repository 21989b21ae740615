"""Tables of measured kernels of NVIDIA's aiconfigurator (Apache-2.0) as datasets, one for each GPU and release of an engine.

`tables.py` finds the files, one module a group of families turns their columns into those of a dataset, `importer.py` joins them.
"""
