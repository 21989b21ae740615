"""Kernels of inference engines: curves by GPU and engine, fitted on measured kernels in captured graphs, and their seconds."""
