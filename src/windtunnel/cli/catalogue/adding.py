"""`windtunnel catalog add KIND WHAT`."""

from __future__ import annotations

import sys
from pathlib import Path

from windtunnel.cli.shared.common import writable, write
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.jobs.options import CatalogAddCommandOptions

EXAMPLES = """\b
Examples:
  windtunnel catalog add model config.json --name my-model
  windtunnel catalog add gpu x1 --memory 288GB --bandwidth 22TB/s --bf16 4PFLOP/s --fp8 8PFLOP/s --power 1800W --nvlink 3.6TB/s
  windtunnel catalog add cluster x1-ib --gpu x1.toml --gpus-per-node 8 --nvlink 3.6TB/s --nic 800Gb/s --gpus 1024
"""


@bare_command_of(CatalogAddCommandOptions)
def command(asked: CatalogAddCommandOptions) -> None:
    from windtunnel.jobs.entries import make_entry

    entry = make_entry(asked, sys.stdin.read)
    target = asked.out or entry.file
    writable(("--out", target))
    write(entry.text, target, "--out")
    if target == "-":
        return
    lines = [f"{entry.kind} {entry.name} -> {Path(target)}", *(f"assumed: {line}" for line in entry.assumed)]
    sys.stdout.write("\n".join([*lines, f"next: {entry.next_command(target)}"]) + "\n")
