"""Requirements of each feature on model, plan, runtime and cluster: a file for each feature, called by `spec.check`."""
