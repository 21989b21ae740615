"""The verbs of the command line as Python functions: `windtunnel.predict` and the others. Rooms are imported on the first call."""
