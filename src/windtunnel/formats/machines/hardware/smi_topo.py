"""`nvidia-smi topo -m`, alone or inside a log, also with terminal colours: a matrix of GPUs and NICs.

NV# counts NVLinks of a pair, PIX to SYS are PCIe paths from near to far (legend of the tool). Behind a switch every pair shows all
links of a GPU; in a mesh the links of a row add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.node import MOST_LINKS, NodeFacts, cluster_of, gpu_of_name
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, strip

_HEADER = re.compile(r"^\s*(?:GPU\d+\s+)*GPU0\s+GPU1\s|^\s*GPU0(?:\s+(?:NIC\d+|mlx\w+|\S*_?\d))*\s+CPU Affinity")
_ROW = re.compile(
    r"^\s*((?:GPU|NIC)\d{1,3}|mlx\d_\w+|[\w.]+)\s+((?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB)(?:\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB))*)(?:\s|$)"
)
_DEVICE = re.compile(r"GPU \d+: (NVIDIA [^(]+?) \(UUID|\|\s+\d+\s+(NVIDIA [\w .-]+?)\s{2,}(?:On|Off)")
_NIC = re.compile(r"^\s*NIC(\d{1,5}): (\S+)")


def recognises(head: Head) -> bool:
    """A header of GPUs with a row of the first GPU behind it."""
    lines = [strip(line) for line in (head.text or head.data.decode("utf-8", "replace")).splitlines()]
    return any(_HEADER.match(line) and any(_ROW.match(row) for row in lines[at + 1 : at + 4]) for at, line in enumerate(lines))


def read(files: Sequence[Path], context: Context) -> Reading:
    """A node. FileError for files without a matrix, or with one that is cut off."""
    (path, *more) = files
    rows, names, printed, coherent, broken = _matrix(path, context)
    gpus = [name for name in rows if name.startswith("GPU")]
    if not gpus:
        raise FileError(str(path), "no matrix of GPUs", "what `nvidia-smi topo -m` prints")
    size = max(len(row) for row in rows.values())
    cut = [name for name, row in rows.items() if len(row) != size]
    if cut or size < len(rows):
        broken.append(f"{path}: rows of {', '.join(cut[:5]) or 'the matrix'} are cut off")
    broken += [f"{path}: {damage}" for damage in (*_without_nvlink(rows, gpus), *_damages(rows))]
    kinds = Counter(cell for row in rows.values() for cell in row)
    links, kind = _links(rows, gpus)
    gpu = next((known for name in printed if (known := gpu_of_name(name)) is not None), None)
    node = NodeFacts(len(gpus), gpu, links, kind, len(rows) - len(gpus), printed=min(printed, default=""), coherent=coherent)
    cluster, built, assumed = cluster_of(node, context, path.name)
    facts: dict[str, Any] = {
        "rows": len(rows), "gpus": len(gpus), "nics": len(rows) - len(gpus), "kinds": dict(kinds), "links_per_gpu": links,
        "scale_up": kind, "nic_names": names, "nearest_nics": _nearest(rows, gpus), "devices": sorted(printed),
    }  # fmt: skip
    ignored = tuple(f"{path}: another node's matrix" for path in more)
    return Reading("nvidia-smi-topo", Content.CLUSTER, cluster, facts, tuple(built), ignored, tuple(assumed), tuple(broken))


def _matrix(path: Path, context: Context) -> tuple[dict[str, list[str]], list[str], set[str], bool, list[str]]:
    """The first matrix of a file: cells by row; names of NICs; names of GPUs that the file prints elsewhere; whether its last
    column, the NUMA node that a GPU itself is, has numbers."""
    rows: dict[str, list[str]] = {}
    nics: dict[int, str] = {}
    printed: set[str] = set()
    own_nodes: list[str] | None = None
    state = "before"
    lines = LogLines(path, context.progress)
    for text in lines:
        if match := _DEVICE.search(text):
            printed.add((match[1] or match[2]).strip())
        elif match := _NIC.match(text):
            nics.setdefault(int(match[1]), match[2])
        if state == "before" and _HEADER.match(text):
            state = "inside"
            own_nodes = [] if "GPU NUMA ID" in text else None
        elif state == "inside":
            row = _ROW.match(text)
            if row and row[1] not in rows:
                rows[row[1]] = row[2].split()
                if own_nodes is not None and row[1].startswith("GPU"):
                    own_nodes.append(text.split()[-1])
            elif rows:
                state = "after"
    coherent = bool(own_nodes) and all(text.isdecimal() for text in own_nodes or ())
    return rows, [name for _, name in sorted(nics.items())], printed, coherent, list(lines.broken)


def _links(rows: dict[str, list[str]], gpus: list[str]) -> tuple[int, str]:
    """(NVLinks of a GPU, kind of scale-up)."""
    counts = [[int(cell[2:]) for cell in rows[name][: len(gpus)] if cell.startswith("NV")] for name in gpus]
    best = max(counts, key=sum, default=[])
    if not best:
        return 0, "pcie"
    if sum(best) > MOST_LINKS and min(best) == max(best):
        return best[0], "nvswitch"
    return sum(best), "nvlink_mesh"


def _without_nvlink(rows: dict[str, list[str]], gpus: list[str]) -> list[str]:
    """GPUs with fewer NVLinks than the others, where most have some: a broken GPU, board or driver."""
    counts = {name: sum(cell.startswith("NV") for cell in rows[name][: len(gpus)]) for name in gpus}
    usual = Counter(counts.values()).most_common(1)[0][0]
    lacking = [name for name in gpus if counts[name] == 0 < usual]
    if not lacking:
        return []
    whose = f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'}"
    number = lacking[0].removeprefix("GPU")
    return [
        f"{whose} no NVLink, the other GPUs have: calls over all of them go over PCIe. The node below is as if it were whole; "
        f"nvidia-smi nvlink -s -i {number} shows the links"
    ]


def _damages(rows: dict[str, list[str]]) -> list[str]:
    """Where cells contradict each other: a lost or added tab shifts the cells of a row."""
    names = list(rows)
    shifted = [name for at, name in enumerate(names) if len(rows[name]) > at and rows[name][at] != "X"]
    if shifted:
        return [f"rows of {', '.join(shifted[:5])} are shifted: their X is not in their own column"]
    odd = [
        (names[i], names[j], rows[names[i]][j], rows[names[j]][i])
        for i in range(len(names))
        for j in range(i)
        if len(rows[names[i]]) > j and len(rows[names[j]]) > i and rows[names[i]][j] != rows[names[j]][i]
    ]
    if not odd:
        return []
    one, other, there, here = odd[0]
    return [f"{len(odd)} pairs have two paths: {one} to {other} is {there}, and back {here}: columns may have shifted"]


def _nearest(rows: dict[str, list[str]], gpus: list[str]) -> dict[str, list[str]]:
    """NICs of each GPU that are nearest to it."""
    order = ["PIX", "PSB", "PXB", "PHB", "NODE", "SOC", "SYS"]
    others = [name for name in rows if name not in gpus]
    nearest: dict[str, list[str]] = {}
    for name in gpus:
        paths = dict(zip(others, rows[name][len(gpus) :], strict=False))
        ranked = [path for path in order if path in paths.values()]
        if ranked:
            nearest[name] = [other for other, path in paths.items() if path == ranked[0]]
    return nearest
