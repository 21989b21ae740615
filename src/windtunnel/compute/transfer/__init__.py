"""From GPUs that were measured to one that was not: the laws, the shared curves, and the constants that `choose` answers."""
