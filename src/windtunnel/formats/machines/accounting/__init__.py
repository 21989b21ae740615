"""Tables of jobs that a scheduler kept: Slurm's `sacct`, LSF, and published traces of clusters."""

from windtunnel.formats.machines.accounting.reader import read, recognises

__all__ = ["read", "recognises"]
