"""`windtunnel fleet checkpoints`: the group of verbs for folders of checkpoints. None of `ls`, `verify` and `rm` needs torch."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "ls": ("fleet.checkpoints.ls", "The steps in a folder: committed, incomplete or damaged, and why."),
    "verify": ("fleet.checkpoints.verify", "Read every file of the committed steps and compare its hash."),
    "rm": ("fleet.checkpoints.rm", "Delete steps; the newest two only with --force."),
    "export": ("fleet.checkpoints.export", "The weights of a committed step as one safetensors file."),
}
