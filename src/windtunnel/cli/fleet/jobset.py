"""`windtunnel fleet jobset NAME -- COMMAND`: a kept job as a JobSet of Kubernetes."""

from __future__ import annotations

from windtunnel.cli.shared.common import write
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.fleet.engines.kubernetes import JobSetOptions, jobset_text

EXAMPLES = """\b
Examples:
  windtunnel fleet jobset llama --image registry/train:1 --nodes 16 --spares 1 -- python train.py | kubectl apply -f -
"""


@bare_command_of(JobSetOptions, order=("name", "command"))
def command(asked: JobSetOptions) -> None:
    write(jobset_text(asked), asked.out, "--out")
