"""One agent a node: starts, watches and ends a process a GPU, and tells the driver. Its ranks belong to a keeper process, so that
they outlive the agent."""
