"""A job, a cluster or a predicted step in the files of other tools: one file a format, listed in `exporters`."""
