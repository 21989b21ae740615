"""`windtunnel serve-predict`, `serve-search` and `serve-fleet`: a model behind an inference engine on a cluster."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from windtunnel.api.serving import answer_search, answer_serve, take_line
from windtunnel.cli.shared.common import bar, notes
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.options import ServeOptions, ServeSearchOptions, settings_words

_KEPT = 0.9
"""Share of requests that have to keep the limits."""


def predict(options: ServeOptions, outputs: Outputs) -> None:
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


def search(options: ServeSearchOptions, outputs: Outputs) -> None:
    from windtunnel.serving.front_sheet import front_sheet

    options = take_line(options)
    with bar(f"serving {options.model}") as progress:
        found = answer_search(replace(options, progress=progress))
    shared = [str(options.model), "--on", str(options.on), "--isl", str(options.isl), "--osl", str(options.osl)]
    shared += settings_words(options)
    sets = [word for text in options.overrides for word in ("--set", text)]
    asked = [shlex.quote(word) for word in [*shared, "--seed", str(options.seed), *sets]]
    outputs.show(front_sheet(found, asked), found.as_dict)
