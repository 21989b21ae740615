"""`windtunnel fleet checkpoints`: the group of verbs for folders of checkpoints. None of `ls`, `verify` and `rm` needs torch."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "ls": ("fleet_checkpoints_ls", "The steps in a folder: committed, incomplete or damaged, and why."),
    "verify": ("fleet_checkpoints_verify", "Read every file of the committed steps and compare its hash."),
    "rm": ("fleet_checkpoints_rm", "Delete steps; the newest two only with --force."),
    "export": ("fleet_checkpoints_export", "The weights of a committed step as one safetensors file."),
}
