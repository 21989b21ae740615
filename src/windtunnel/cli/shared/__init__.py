"""Shared by the verbs: their registry, options, output, progress, shell completion, and the job of a command line."""
