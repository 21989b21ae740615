"""Pages of measured runs: what a run shows alone, beside the prediction of its job, and with one thing changed."""
