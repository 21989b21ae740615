"""`windtunnel serve-fleet MODEL --on CLUSTER`."""

from __future__ import annotations

from windtunnel.cli.shared.common import writable
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.serving.options import ServeFleetOptions

EXAMPLES = """\b
Examples:
  windtunnel serve-fleet llama3.1-70b --on h100-ib --tp 4 --weights fp8 --rate 20 --ttft 1 --tpot 0.03
  windtunnel serve-fleet llama3.1-8b --on h100-ib --tp 1 --users 500 --turns 5 --think 10 --router cache-aware --ttft 1
  windtunnel serve-fleet llama3.1-8b --on h100-ib --tp 1 --rate 12 --curve swing=0.8 --autoscale 2-20 --mtbf 200 --tpot 0.02
  windtunnel serve-fleet llama3.1-70b --on h100-ib --tp 4 --weights fp8 --prefill tp=2 --isl 8192 --rate 8 --ttft 2 --tpot 0.03
"""


@command_of(ServeFleetOptions)
def command(options: ServeFleetOptions, outputs: Outputs) -> None:
    from windtunnel.api.serving import answer_fleet_question
    from windtunnel.serving.replicas.sheet import fleet_sheet

    writable(("--requests-out", options.requests_out))
    answer = answer_fleet_question(options)
    outputs.show(fleet_sheet(answer), answer.as_dict)
