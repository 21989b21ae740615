"""The file that SimAI_analytical writes: `<run>EndToEnd.csv`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from windtunnel.replay.simai.arithmetic import GIB, EndToEnd, TimedLayer

SUMMARY = (
    "File name", "Expose DP comm", "Expose DP_EP comm", "Expose TP comm", "Expose_EP_comm", "Expose_PP_comm", "bubble time",
    "total comp", "total exposed comm", "Total time",
)  # fmt: skip
COLUMNS = (
    "fwd compute,wg compute,ig compute,fwd exposed comm,wg exposed comm,ig exposed comm,fwd total comm,algbw,busbw,"
    "wg total comm,algbw,busbw,ig total comm,algbw,busbw"
)
RUN = "Analytical_test"


def summary_of(result: EndToEnd, name: str) -> dict[str, str]:
    """Cells of the summary row: us, and the share of the total time."""
    times = (result.dp, result.dp_ep, result.tp, result.ep, result.pp, result.bubble, result.compute, result.exposed)
    cells = [f"{_format_whole(one)} ({_share(one, result.total)}%)" for one in times]
    return dict(zip(SUMMARY, (name, *cells, _format_whole(result.total)), strict=True))


def csv_lines(result: EndToEnd, name: str) -> Iterator[str]:
    """The file's lines."""
    yield ", ".join(SUMMARY)
    yield ", ".join(summary_of(result, name).values())
    yield f"layer_name,{RUN},{COLUMNS}"
    for line in result.lines:
        yield ",".join((line.layer.name, RUN, *_cells(line)))


def _cells(line: TimedLayer) -> Iterator[str]:
    order = (0, 2, 1)
    for values in (line.compute, line.exposed):
        for at in order:
            yield _format_whole(values[at] / 1000.0)
    for at in order:
        algbw, busbw = rates(line, at)
        yield _format_whole(line.calls[at] / 1000.0)
        yield _rate(algbw)
        yield _rate(busbw)


def rates(line: TimedLayer, at: int) -> tuple[float, float]:
    """GiB/s of a call: of the buffer, and times the collective's factor; NaN without bytes and time, infinite without time."""
    size, us, ranks = line.bytes[at], line.calls[at] / 1000.0, line.ranks[at]
    algbw = size / us * 1e6 / GIB if us else (math.inf if size else math.nan)
    call = line.layer.calls[at]
    if call.startswith("ALLREDUCE"):
        return algbw, algbw * 2 * (ranks - 1) / ranks if ranks else math.nan
    known = call.startswith(("ALLGATHER", "REDUCESCATTER", "ALLTOALL"))
    return algbw, algbw * (ranks - 1) / ranks if known and ranks else 0.0


def _format_whole(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "NaN or Inf"


def _share(value: float, total: float) -> str:
    return _rate(value / total * 100 if total else math.nan)


def _rate(value: float) -> str:
    return "-nan" if math.isnan(value) else f"{value:.2f}"
