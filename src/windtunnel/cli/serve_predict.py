"""`windtunnel serve-predict MODEL --on CLUSTER`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from windtunnel.api.serving import answer_serve
from windtunnel.cli.shared.common import notes, writable
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.options import ServeOptions, settings_words

EXAMPLES = """\b
Examples:
  windtunnel serve-predict llama3.1-70b --on h100-ib --tp 4 --weights fp8 --concurrency 64
  windtunnel serve-predict deepseek-v3 --on b200-ib --engine sglang --tp 8 --weights fp8 --isl 8192 --osl 1024 --concurrency 32
  windtunnel serve-predict llama3.1-70b --on h100-ib --gpus 8 --tp 4 --prefill gpus=4,tp=2 --weights fp8 --isl 8192 --rate 2
  windtunnel serve-predict llama3.1-8b --on h100-ib --gpus 2 --tp 1 --trace azure.csv --ttft 1 --tpot 0.05
"""
_KEPT = 0.9
"""Share of requests that have to keep the limits."""


@command_of(ServeOptions)
def command(options: ServeOptions, outputs: Outputs) -> None:
    writable(("--requests-out", options.requests_out))
    answer = answer_serve(replace(options, record=outputs.wants_detail))
    from windtunnel.serving.sheet import server_sheet

    outputs.show(server_sheet(answer), answer.as_dict)
    if answer.limits is not None and answer.limits.kept < _KEPT:
        suggest_search(options)


def suggest_search(options: ServeOptions) -> None:
    """Says what to type for a plan that keeps the limits under this load, where the load is users or a rate."""
    if options.trace is not None or options.sessions is not None or options.turns is not None:
        return
    load = ("--rate", options.rate) if options.rate is not None else ("--all-users", options.concurrency or 16)
    said: list[tuple[str, Any]] = [
        ("--weights", options.weights),
        ("--kv", options.kv),
        load,
        ("--ttft", options.ttft),
        ("--tpot", options.tpot),
    ]
    words = [str(options.model), "--on", str(options.on), "--isl", str(options.isl), "--osl", str(options.osl)]
    if options.engine != ENGINES.default:
        said.append(("--engine", options.engine))
    if options.rate is not None and options.burstiness != 1.0:
        said.append(("--burstiness", options.burstiness))
    said += [("--speculate", options.speculate), *(("--set", text) for text in options.overrides)]
    words += [*(str(word) for pair in said if pair[1] is not None for word in pair), *settings_words(options)]
    notes().print(f"Next: windtunnel serve-search {shlex.join(words)}", markup=False, soft_wrap=True)
