"""SimAI's workload as AICB writes it: a policy with the parallel degrees, a number of lines, then 12 or 13 columns a line.

Times are ns, bytes are those of the whole buffer. Format: aliyun/SimAI, `Workload::initialize_workload`, read at release 1.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import lines_of

POLICIES = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "DATA", "MODEL",
    "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_CUSTOMIZED", "MICRO", "DISTRIBUTED_INFERENCE",
)  # fmt: skip
KEYS = {
    "model_parallel_NPU_group": "tp", "ep": "ep", "pp": "pp", "vpp": "vpp", "ga": "ga", "all_gpus": "gpus", "pp_comm": "pp_bytes",
}  # fmt: skip
"""Keys of the first line, and what they are called here."""
LISTS = ("checkpoints", "checkpoint_initiates")
PASSES = ("fwd", "ig", "wg")
COLUMNS = 12
LARGEST = 2**63 - 1
MOST_LINES = 2_000_000
OWN = ("all_gpus:", "ep:", "vpp:", "ga:")
"""Keys that ASTRA-sim 1, which has the same columns, does not have."""


@dataclass(frozen=True, slots=True)
class SimaiLayer:
    """A line: ns of computation, call and bytes of the forward, input gradient and weight gradient pass; ns of the update."""

    name: str
    compute: tuple[int, int, int]
    calls: tuple[str, str, str]
    bytes: tuple[int, int, int]
    update: int
    dependency: int = -1
    policy: str = ""  # column 13, of HYBRID_CUSTOMIZED


@dataclass(frozen=True)
class SimaiWorkload:
    """A file. `keys`: what the first line states of tp, ep, pp, vpp (layers of a stage), ga, gpus and pp_bytes (of a message
    between stages); `checkpoints`, `initiates`: lines whose forward pass runs again in the backward pass, and where that begins."""

    policy: str
    keys: Mapping[str, int]
    layers: tuple[SimaiLayer, ...]
    checkpoints: tuple[int, ...] = ()
    initiates: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()
    declared: int = 0
    widths: Mapping[int, int] = field(default_factory=dict)  # columns -> lines that have so many
    broken: tuple[str, ...] = ()

    def degree(self, name: str) -> int:
        """A degree, 1 where the first line does not state it."""
        return max(1, self.keys.get(name, 1))


def is_workload(lines: Sequence[str]) -> bool:
    """Whether text begins as a workload of SimAI: its own keys in the first line, or the policy that AICB always writes."""
    if len(lines) < 3 or not lines[1].strip().isdigit():
        return False
    words = lines[0].split()
    if not words or words[0] not in POLICIES:
        return False
    stated = any(key in words for key in OWN) or (words[0] == POLICIES[0] and "model_parallel_NPU_group:" in words)
    return stated and layer_of(lines[2].split()) is not None


def read_workload(path: Path) -> SimaiWorkload:
    """A workload from its file, which may be gzip. FileError for one that is none; lines that are none are counted."""
    lines = lines_of(path, "a workload of SimAI")
    head = next(lines, "").split()
    count = next(lines, "").strip()
    if not head or head[0] not in POLICIES or not count.isdigit():
        found = " ".join(head)[:60]
        raise FileError(
            str(path), repr(found) if found else "an empty file", "a workload of SimAI", f"Policies: {', '.join(POLICIES)}."
        )
    layers: list[SimaiLayer] = []
    rows = 0
    widths: Counter[int] = Counter()
    for line in lines:
        row = line.split()
        if not row:
            continue
        rows += 1
        widths[len(row)] += 1
        layer = layer_of(row)
        if layer is not None:
            layers.append(layer)
        if rows > MOST_LINES:
            raise FileError(str(path), f"more than {MOST_LINES:,} lines", "a workload of SimAI")
    declared = int(count[:9])
    broken = [f"{rows - len(layers)} lines have no {COLUMNS} columns with numbers where they belong"] if rows > len(layers) else []
    if declared != rows:
        broken.append(f"{rows} lines follow where the second line says {declared}")
    keys, lists, unknown = header_of(head[1:], str(path))
    broken += [f"words of the first line that SimAI does not read: {' '.join(unknown)[:80]}"] if unknown else []
    return SimaiWorkload(head[0], keys, tuple(layers), *lists, tuple(head[1:]), declared, dict(widths), tuple(broken))


def header_of(words: Sequence[str], name: str) -> tuple[dict[str, int], tuple[tuple[int, ...], tuple[int, ...]], list[str]]:
    """Numbers and lists of the first line, and words that are neither. The colon after a key may be missing."""
    keys: dict[str, int] = {}
    lists: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    at = 0
    while at < len(words):
        key = words[at].removesuffix(":")
        at += 1
        if key in KEYS:
            keys[KEYS[key]] = _whole_number(words[at] if at < len(words) else "", f"{name}, line 1: {key}")
            at += 1
        elif key in LISTS:
            count = _whole_number(words[at] if at < len(words) else "", f"{name}, line 1: {key}")
            members = words[at + 1 : at + 1 + count]
            if len(members) < count:
                raise SpecError(f"{name}, line 1: {key}", count, f"a count of the numbers behind it: {len(members)} follow")
            lists[key] = tuple(_whole_number(one, f"{name}, line 1: {key}") for one in members)
            at += 1 + count
        else:
            unknown.append(key)
    return keys, (lists.get(LISTS[0], ()), lists.get(LISTS[1], ())), unknown


def layer_of(row: Sequence[str]) -> SimaiLayer | None:
    """A line's columns; None where one is missing or is no whole number."""
    if len(row) < COLUMNS:
        return None
    numbers = [_number(row[at]) for at in (2, 4, 5, 7, 8, 10, 11)]
    dependency = row[1].removeprefix("-")
    if any(one < 0 for one in numbers) or not (dependency.isdigit() and len(dependency) < 10):
        return None
    fwd, fwd_bytes, ig, ig_bytes, wg, wg_bytes, update = numbers
    return SimaiLayer(
        row[0], (fwd, ig, wg), (row[3], row[6], row[9]), (fwd_bytes, ig_bytes, wg_bytes), update, int(row[1]),
        row[COLUMNS] if len(row) > COLUMNS else "",
    )  # fmt: skip


def facts_of(workload: SimaiWorkload) -> dict[str, Any]:
    """Counts and sums that can be checked against the file."""
    comm: dict[str, dict[str, int]] = {}
    for layer in workload.layers:
        for name, call, size in zip(PASSES, layer.calls, layer.bytes, strict=True):
            if call != "NONE":
                entry = comm.setdefault(f"{name}:{call}", {"count": 0, "bytes": 0})
                entry["count"] += 1
                entry["bytes"] += size
    sums = {name: sum(layer.compute[at] for layer in workload.layers) for at, name in enumerate(PASSES)}
    return {
        "policy": workload.policy,
        "header_tokens": list(workload.tokens),
        **workload.keys,
        "declared_layers": workload.declared,
        "rows": sum(workload.widths.values()),
        "short_rows": sum(lines for width, lines in workload.widths.items() if width < COLUMNS),
        "columns": sorted(workload.widths),
        "compute_sum": sums | {"update": sum(layer.update for layer in workload.layers)},
        "comm": comm,
        "names": dict(Counter(layer.name for layer in workload.layers).most_common(12)),
    }


def workload_text(workload: SimaiWorkload) -> str:
    """The file: what `read_workload` reads back the same."""
    words = list(workload.tokens)
    if not words and workload.keys:
        by_name = {name: key for key, name in KEYS.items()}
        for name, value in workload.keys.items():
            words += [f"{by_name[name]}:", str(value)]
        for key, members in zip(LISTS, (workload.checkpoints, workload.initiates), strict=True):
            words += [f"{key}:", str(len(members)), *map(str, members)]
    lines = [" ".join((workload.policy, *words)), str(len(workload.layers))]
    for layer in workload.layers:
        row: list[object] = [layer.name, layer.dependency]
        for at in range(3):
            row += [layer.compute[at], layer.calls[at], layer.bytes[at]]
        lines.append("\t".join(str(cell) for cell in (*row, layer.update, *([layer.policy] if layer.policy else []))))
    return "\n".join(lines) + "\n"


def _number(text: str) -> int:
    """A whole number, written as one or with zeros behind a point; -1 for anything else."""
    whole, _, rest = text.partition(".")
    if not whole.isdigit() or len(whole) > 19 or rest.strip("0") or int(whole) > LARGEST:
        return -1
    return int(whole)


def _whole_number(text: str, where: str) -> int:
    number = _number(text)
    if number < 0 or number > 2**53:
        raise SpecError(where, text, "a whole number from 0 to 2^53")
    return number
