"""Tables of measured kernels, whatever their format, as datasets of one GPU: a file for each format."""
