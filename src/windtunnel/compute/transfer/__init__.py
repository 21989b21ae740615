"""Transfer from measured GPUs to an unmeasured one: the laws, the shared curves, and the constants that `choose` returns."""
