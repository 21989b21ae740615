"""`windtunnel fleet checkpoints export STEP_FOLDER FILE`: weights as safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.shared.common import writable

EXAMPLES = """\b
Examples:
  windtunnel fleet checkpoints export checkpoints/step-00002000 weights.safetensors
  windtunnel fleet checkpoints export checkpoints/step-00002000 ema.safetensors --key ema
  windtunnel fleet checkpoints export s3://bucket/run/step-00002000 weights.safetensors
"""


def command(
    step: Annotated[str, typer.Argument(metavar="STEP_FOLDER", help="A committed step: a folder, or its URL in a store.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write.")],
    key: Annotated[str, typer.Option("--key", metavar="NAME", help="The part of the state that is written.")] = "model",
) -> None:
    from windtunnel.base.errors import PlanError

    writable(("FILE", file))
    try:
        from windtunnel.fleet.checkpoint.export import export_weights
    except ImportError as error:
        raise PlanError(
            "export", str(error), "torch and safetensors installed", "Type: pip install 'windtunnel[fleet,torch]'"
        ) from error
    count, size = export_weights(step, Path(file), key)
    typer.echo(f"{count} tensors, {size / 2**20:.1f} MiB in {file}")
