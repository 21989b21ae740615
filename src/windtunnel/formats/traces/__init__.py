"""Traces, stacks and schedules of other tools as runs and trace graphs: a file or folder for each format."""
