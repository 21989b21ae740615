"""The checkpoint cases as lines of docs/faults.md."""

from __future__ import annotations

from tests.faults.outcome import Line

_KILLS = (
    "SIGKILL of a random rank, of all ranks or of the process that writes, at 11 points of a save and at any time; "
    "right: the newest committed step is loaded by all ranks, whole"
)
_DAMAGES = "a bit flipped, a file cut, gone or empty, two files swapped; right: found by its hash, the step before is loaded"
_DISKS = (
    "a full disk, I/O errors, a disk ten times slower; right: training lives, the save is told as failed, the next one is "
    "committed, memory stays bounded"
)
LINES = (
    Line("F2", _KILLS, 600, "checkpoints"),
    Line("F10", _DAMAGES, 500, "checkpoints"),
    Line("F11", _DISKS, 90, "checkpoints"),
)
"""Jobs of 2 ranks over gloo; the disk of the full case is a small tmpfs. Counts of all points, damages and disks together."""
