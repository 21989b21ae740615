"""`windtunnel collective --show-transfers`: transfers step by step, as text or as a file that `--algorithm` reads."""

from __future__ import annotations

from windtunnel.network.lanes.build import CallLanes
from windtunnel.network.lanes.send_files import csv_of, rows_of
from windtunnel.network.lanes.timing import TransferList

MOST_LINES = 200


def listing(lowered: CallLanes, sent: TransferList, op: str) -> str:
    """A table of the first transfers."""
    lines = [
        f"# {op} of {lowered.call.size:.0f} B on {lowered.call.ranks} GPUs: {lowered.algorithm}, {lowered.protocol}, "
        f"{lowered.call.channels} channels, {sent.total} transfers on {len(lowered.lanes)} lanes",
        f"# {'transfer':>8}  {'step':>5}  {'from':>6}  {'to':>6}  {'bytes':>10}  {'channel':>7}  after",
    ]
    for t in range(min(len(sent), MOST_LINES)):
        after = sent.after[sent.after_start[t] : sent.after_start[t + 1]].tolist()
        lines.append(
            f"{t:>10}  {sent.step[t]:>5}  {_name(sent.src[t], lowered):>6}  {_name(sent.dst[t], lowered):>6}  "
            f"{sent.bytes[t]:>10}  {sent.channel[t]:>7}  {' '.join(map(str, after)) or '-'}"
        )
    if sent.total > MOST_LINES:
        lines.append(f"# {sent.total - MOST_LINES} more; --json writes up to {len(sent)} of them")
    return "\n".join(lines)


def as_json(lowered: CallLanes, sent: TransferList, op: str) -> dict[str, object]:
    """All listed transfers; `--algorithm` reads `sends` and `size` from a JSON file."""
    rows = rows_of(sent, lowered.call.ranks)
    return {
        "op": op,
        "size": lowered.call.size,
        "gpus": lowered.call.ranks,
        "algorithm": lowered.algorithm,
        "protocol": lowered.protocol,
        "channels": lowered.call.channels,
        "total": sent.total,
        "sends": rows,
    }


def as_csv(lowered: CallLanes, sent: TransferList) -> str:
    """The CSV that `--algorithm` reads."""
    return f"# size={lowered.call.size:.0f}\n{csv_of(sent, lowered.call.ranks)}"


def _name(number: int, lowered: CallLanes) -> str:
    return str(number) if number < lowered.call.ranks else f"s{number - lowered.call.ranks}"
