"""How many processes a launch line starts, one a GPU: torchrun, deepspeed, accelerate, srun, mpirun, and variables before it.

Sources: torch/distributed/run.py, deepspeed/launcher/runner.py, accelerate commands/launch.py, srun(1), Open MPI's mpirun(1);
ms-swift swift/cli/main.py and LLaMA-Factory launcher.py, which hand NNODES and NPROC_PER_NODE to torchrun.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass

KEY = "launched"
"""Where a table of a trainer has what a launcher leaves open; `num_processes` is there where nothing is open."""

_TOTAL, _NODES, _PER_NODE, _TASKS, _TASKS_PER_NODE = "processes", "nodes", "per_node", "tasks", "tasks_per_node"
_FLAGS: dict[str, dict[str, str]] = {
    "": {},
    "torch": {"nnodes": _NODES, "nproc-per-node": _PER_NODE},
    "deepspeed": {"num-gpus": _PER_NODE, "num-nodes": _NODES},
    "accelerate": {"num-processes": _TOTAL, "num-machines": _NODES},
    "slurm": {
        "nodes": _NODES, "N": _NODES, "ntasks": _TASKS, "n": _TASKS, "ntasks-per-node": _TASKS_PER_NODE, "gpus-per-node": _PER_NODE,
        "gres": _PER_NODE, "gpus": _TOTAL, "G": _TOTAL,
    },
    "mpi": {"np": _TASKS, "n": _TASKS, "npernode": _TASKS_PER_NODE, "N": _TASKS_PER_NODE, "ppn": _TASKS_PER_NODE, "H": "hosts",
            "host": "hosts"},
}  # fmt: skip
"""Flags of launchers that count; `srun -N` counts nodes, `mpirun -N` processes of a node."""
_LAUNCHERS = {
    "torchrun": "torch", "torch.distributed.run": "torch", "torch.distributed.launch": "torch", "tune": "torch",
    "deepspeed": "deepspeed", "deepspeed.launcher.runner": "deepspeed", "accelerate": "accelerate",
    "accelerate.commands.launch": "accelerate",
    "srun": "slurm", "sbatch": "slurm", "mpirun": "mpi", "mpiexec": "mpi", "orterun": "mpi",
}  # fmt: skip
_VARIABLES = {
    "NNODES": _NODES, "PET_NNODES": _NODES, "NPROC_PER_NODE": _PER_NODE, "PET_NPROC_PER_NODE": _PER_NODE,
    "SLURM_NNODES": _NODES, "SLURM_GPUS_ON_NODE": _PER_NODE, "SLURM_NTASKS_PER_NODE": _TASKS_PER_NODE, "SLURM_NTASKS": _TASKS,
}  # fmt: skip
"""Variables that a launcher reads, the earlier of a meaning first."""
_ASSIGNED = re.compile(r"([A-Z_][A-Z_0-9]*)=(.*)", re.DOTALL)
_HOST = re.compile(r"\s*([^\s#]+)\s+slots=(\d{1,5})\b")
_GRES = re.compile(r"gpu(?::[\w.-]+)*?:(\d{1,4})")


@dataclass(frozen=True)
class Launched:
    """Counts of a launch line; None where they are not in reach. `unset`: words that should count and do not, such as `$N`."""

    processes: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    unset: tuple[str, ...] = ()

    @property
    def total(self) -> int | None:
        """GPUs of all together; None where a count is missing. A launcher that names no nodes starts on one."""
        if self.processes is not None:
            return self.processes
        if self.per_node is None or self.nodes is None and self.unset:
            return None
        return self.per_node * (self.nodes or 1)

    def as_table(self) -> dict[str, Any]:
        """The keys of a trainer's table that say it."""
        if self.total is not None:
            return {"num_processes": self.total}
        left = {"nodes": self.nodes, "per_node": self.per_node, "unset": list(self.unset)}
        return {KEY: left} if any(left.values()) else {}

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> Launched:
        """What `as_table` wrote of counts that are open."""
        left = table.get(KEY)
        left = left if isinstance(left, Mapping) else {}
        return cls(None, left.get("nodes"), left.get("per_node"), tuple(left.get("unset", ())))


def launcher_of(words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> Launched:
    """What the words before a program, and the variables of the script, say of its processes. `folder`: where hostfiles lie."""
    known = dict(environment) | {match[1]: match[2] for word in words if (match := _ASSIGNED.fullmatch(word)) is not None}
    counts: dict[str, int] = {}
    unset: dict[str, str] = {}
    for name, what in _VARIABLES.items():
        if what not in counts and what not in unset and (value := known.get(name)):
            _take(counts, unset, what, value, f"{name}={value}")
    parts, said, whole = _parts(words), dict[str, str](), False
    for kind, listed in parts:
        for written, value in listed:
            name = written.lstrip("-").replace("_", "-")
            said[name.replace("-", "_")] = value
            what = _FLAGS[kind].get(name, "")
            if what == "hosts":
                slots = [host.partition(":")[2] or "1" for host in value.split(",") if host]
                if slots and all(slot.isdecimal() for slot in slots):
                    counts.setdefault(_TASKS, sum(map(int, slots)))
            elif what == _PER_NODE and value in ("gpu", "auto"):
                whole = True
                counts.pop(what, None)
                unset.pop(what, None)
            elif what:
                _take(counts, unset, what, value, f"{written} {value}")
    starts = any(kind in ("torch", "deepspeed", "accelerate") for kind, _ in parts)  # processes of its own in each task
    tasks, tasks_per_node = counts.pop(_TASKS, None), counts.pop(_TASKS_PER_NODE, None)
    if starts and tasks and tasks_per_node:
        counts.setdefault(_NODES, max(1, tasks // tasks_per_node))
    elif not starts and _PER_NODE not in counts and _TOTAL not in counts:
        if tasks_per_node and (_NODES in counts or tasks is None):
            counts[_PER_NODE] = tasks_per_node
            if _NODES not in counts and any(kind == "slurm" for kind, _ in parts):
                unset.setdefault(_NODES, "the nodes that sbatch is given")
        elif tasks:
            counts[_TOTAL] = tasks
    if any(kind == "deepspeed" for kind, _ in parts):
        whole = whole or "num_gpus" not in said
        if (listed_gpus := _deepspeed_gpus(said, folder)) is not None:
            return Launched(listed_gpus)
    seen = [word.strip() for word in known.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    if not {_PER_NODE, _TOTAL} & counts.keys() and (whole or not starts) and seen and all(word.isdecimal() for word in seen):
        counts[_PER_NODE] = len(seen)
        unset.pop(_PER_NODE, None)
    return Launched(counts.get(_TOTAL), counts.get(_NODES), counts.get(_PER_NODE), tuple(unset.values()))


def _take(counts: dict[str, int], unset: dict[str, str], what: str, value: str, written: str) -> None:
    """Notes a count, or the words of one that is not known; the later one of a meaning counts."""
    text = _GRES.sub(r"\1", value).rpartition(":")[2].strip("'\"")
    if text.isdecimal() and int(text) > 0 and len(text) < 8:
        counts[what] = int(text)
        unset.pop(what, None)
    elif "$" in value or "<" in value:
        counts.pop(what, None)
        unset[what] = written


def _parts(words: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(kind of launcher, its flags with their values), from the outermost in."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if (kind := _LAUNCHERS.get(word.rpartition("/")[2])) is not None:
            parts.append((kind, []))
        else:
            parts[-1][1].append(word)
    return [(kind, list(_flags(kind, listed))) for kind, listed in parts]


def _flags(kind: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(flag as written, value) of each: `--nnodes 4`, `--nproc_per_node=4`, `-N 4`, `-N4`."""
    for place, word in enumerate(words):
        head, equals, value = word.partition("=")
        short = re.fullmatch(r"(-[NnG])=?(\d+)", word)
        if short is not None and short[1][1:] in _FLAGS[kind]:
            yield short[1], short[2]
        elif word.startswith("-") and equals:
            yield head, value
        elif word.startswith("-") and place + 1 < len(words) and not words[place + 1].startswith("-"):
            yield head, words[place + 1]


def _deepspeed_gpus(said: Mapping[str, str], folder: Path | None) -> int | None:
    """GPUs that deepspeed's --include and --exclude leave of its hostfile (deepspeed/launcher/runner.py); None where no list of
    slots is in reach. `worker-0@worker-1:0,2` is all of one host and two slots of another."""
    hosts: dict[str, int] = {}
    file = folder / said["hostfile"] if folder is not None and "hostfile" in said else None
    if file is not None and file.is_file():
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        hosts = {match[1]: int(match[2]) for line in lines if (match := _HOST.match(line)) is not None}
    if said.get("num_nodes", "").isdecimal() and hosts:
        hosts = dict(list(hosts.items())[: int(said["num_nodes"])])
    if said.get("num_gpus", "").isdecimal() and hosts:
        return sum(min(slots, int(said["num_gpus"])) for slots in hosts.values())
    chosen = {name: _slots(said[name]) for name in ("include", "exclude") if said.get(name)}
    if "include" in chosen:
        total = [len(slots) if slots else hosts.get(host) for host, slots in chosen["include"].items()]
        return None if None in total else sum(count or 0 for count in total)
    if hosts and "exclude" in chosen:
        out = chosen["exclude"]
        return sum(slots - (len(out[host]) or slots) if host in out else slots for host, slots in hosts.items()) or None
    return sum(hosts.values()) or None


def _slots(text: str) -> dict[str, list[str]]:
    """Slots by host of `worker-0:0,1@worker-1`; none for a host that stands alone."""
    hosts = (part.partition(":") for part in text.split("@") if part.strip())
    return {host.strip(): [slot for slot in slots.split(",") if slot.strip()] for host, _, slots in hosts}
