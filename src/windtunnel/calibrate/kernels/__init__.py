"""Constants of one GPU's kernels from measured rows, class by class, with errors on rows held out."""
