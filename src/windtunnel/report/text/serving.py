"""A served model in the terminal: headline, latencies, throughput, memory, money."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.report.words.served_record import server_sentences
from windtunnel.serving import Served
from windtunnel.sheet import numbers as say

GB = 1e9


def report(answer: Served, console: Console | None = None) -> None:
    """Print the whole report."""
    out = console or Console()
    server, plan = answer.server, answer.server.plan
    cluster = server.job.cluster
    out.print(Text(_headline(answer), style="bold"))
    degrees = " x ".join(f"{name} {getattr(plan, name)}" for name in ("tp", "dp", "pp", "ep") if getattr(plan, name) > 1) or "tp 1"
    if answer.prefill is not None:
        side = answer.prefill
        first = " x ".join(
            f"{name} {getattr(side.plan, name)}" for name in ("tp", "dp", "pp", "ep") if getattr(side.plan, name) > 1
        )
        degrees = f"{side.copies} of {first or 'tp 1'} for prompts, {side.decode_copies} of {degrees} for tokens"
    else:
        degrees = f"{degrees}, {server.replicas} of it"
    asked = say.count_words(answer.requests, "request")
    out.print(f"  {server.engine.name}, {cluster.gpus} x {cluster.node.gpu.name}, {degrees}; "
              f"weights {server.weights}, cache {server.kv}; {asked} in {answer.seconds:.4g} s")  # fmt: skip
    if server.speculation is not None:
        out.print(f"  drafts    {_drafts(answer)}", highlight=False)
    out.print(_latencies(answer))
    passes = f"{answer.batch:.3g} requests in the mean pass, {100 * answer.busy:.0f} % of the time"
    out.print(f"  passes    {passes}; weights and cache alone take {1e3 * answer.floor_tpot:.3g} ms of memory bandwidth")
    if answer.prefill is not None:
        side = answer.prefill
        shares = f"prompts {100 * side.busy:.0f} % of the time, tokens {100 * side.decode_busy:.0f} %"
        out.print(f"  sides     {shares}; a cache travels {1e3 * side.transfer:.3g} ms")
    room = answer.room
    parts = f"weights {room.weights / GB:.1f}, activations {room.activations / GB:.1f}, cache {room.cache / GB:.1f} GB a GPU"
    holds = f"{room.tokens:,} tokens or {answer.most_requests:,.0f} such requests"
    out.print(f"  memory    {parts}: {holds}; {100 * answer.cache_peak:.0f} % in use at most")
    if answer.preempted:
        out.print(f"  preempted {say.count_words(answer.preempted, 'time')}; {answer.recomputed:,} tokens were computed again")
    if answer.prefix_hits:
        out.print(f"  prefixes  {100 * answer.prefix_hits:.1f} % of prompt tokens were in the cache")
    if answer.limits is not None:
        kept = f"{100 * answer.limits.kept:.1f} % of requests, {answer.limits.requests_per_s:.3g} a second, keep the limits"
        out.print(f"  limits    {kept}" + (f"; {answer.limits.nearest}" if answer.limits.nearest else ""))
    if answer.dollars is not None:
        errors = answer.relative_errors()
        joules = "" if answer.joules is None else f", {answer.joules / 1e3:,.0f} kJ{say.error_words(errors['joules'])}"
        out.print(f"  price     ${answer.dollars:.3g}{say.error_words(errors['dollars'])}{joules} for a million output tokens")
    for sentence in server_sentences(answer):
        out.print(f"  record    {sentence}", highlight=False)
    for note in answer.notes:
        out.print(f"  note      {note}")


def _drafts(answer: Served) -> str:
    """What drafts, how many tokens, and how many a pass yields."""
    stated = answer.server.speculation
    assert stated is not None
    who = {"mtp": "the model's further layer", "eagle": "a dense layer"}.get(stated.method, "")
    who = stated.model.name if stated.model is not None else who
    load = "" if answer.accepted is None else f"; {answer.accepted:.3g} in this load"
    right = f"each right in {100 * stated.rate:.0f} % behind a right one"
    return f"{stated.drafts} a pass by {who}, {right}: {stated.accepted:.3g} tokens a pass{load}"


def _headline(answer: Served) -> str:
    error = say.error_words(answer.relative_errors()["throughput"])
    speed = f"{answer.tokens_per_s_gpu:,.0f}{error} output tokens/s a GPU, {answer.requests_per_s:.3g} requests/s"
    waits = f"{_milliseconds(answer.tpot.mean)} ms a token after {_milliseconds(answer.ttft.mean)} ms"
    return f"{answer.server.model.name}: {speed}, {waits}"


def _milliseconds(seconds: float) -> str:
    """Four digits, all of those before the point; a dash where no request has such a time."""
    value = 1e3 * seconds
    return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


def _latencies(answer: Served) -> Table:
    """Mean and quantiles of the latencies, in milliseconds, and the error to state of the mean."""
    table = Table(box=None, padding=(0, 2), show_edge=False)
    errors = answer.relative_errors()
    for name in ("ms", "mean", "±", "p50", "p90", "p99"):
        table.add_column(name, justify="left" if name == "ms" else "right")
    for label, name in (("first token", "ttft"), ("each further", "tpot"), ("whole request", "e2e")):
        spread = getattr(answer, name)
        mean, *others = (_milliseconds(value) for value in (spread.mean, spread.p50, spread.p90, spread.p99))
        table.add_row(label, mean, say.error_words(errors[name]).strip(" ±"), *others)
    return table
