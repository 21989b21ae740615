"""`windtunnel fleet jobset NAME -- COMMAND`: a kept job as a JobSet of Kubernetes."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import writable, write

EXAMPLES = """\b
Examples:
  windtunnel fleet jobset llama --image registry/train:1 --nodes 16 --spares 1 -- python train.py | kubectl apply -f -
"""


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the JobSet and of the run.")],
    program: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The command of one rank, after --.")],
    image: Annotated[str, typer.Option("--image", help="A container image with windtunnel and the script.")],
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes that train.")],
    spares: Annotated[int, typer.Option("--spares", min=0, help="Nodes that wait.")] = 0,
    per_node: Annotated[int, typer.Option("--nproc-per-node", min=1, help="Processes of a node, each with a GPU.")] = 8,
    claim: Annotated[
        str, typer.Option("--claim", help="PersistentVolumeClaim that all pods can write: run folder and checkpoints.")
    ] = "windtunnel-run",
    cpus_only: Annotated[bool, typer.Option("--cpus-only", help="Ask for no GPUs.")] = False,
    out: Annotated[str, typer.Option("--out", metavar="FILE|-", help="Where to write the YAML.")] = "-",
) -> None:
    from windtunnel.fleet.engines.kubernetes import JobSetRequest, jobset_text

    writable(("--out", out))
    write(jobset_text(JobSetRequest(name, image, nodes, tuple(program), spares, per_node, claim, cpus_only)), out, "--out")
