"""Captures a job: each rank that differs is run once, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import EngineError, FileError, SpecError
from windtunnel.capture.build import device_library
from windtunnel.capture.launch import script_of, variables_of
from windtunnel.capture.torch_cuda import Card
from windtunnel.records.capture_file import CapturedRank, EntryKind, read_captured
from windtunnel.spec.machine.cluster import Cluster

CAPABILITIES = {
    "volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0), "blackwell": (10, 0), "rubin": (10, 0),
    "cdna2": (9, 0), "cdna3": (9, 4), "cdna4": (9, 5),
}  # fmt: skip
"""Compute capability of an architecture, as `torch.cuda.get_device_capability` says."""


@dataclass(frozen=True)
class CapturedJob:
    """The ranks that were run, and what they stand for."""

    folder: Path
    ranks: tuple[CapturedRank, ...]
    world: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the captured ranks."""
        return tuple(int(rank.about["rank"]) for rank in self.ranks)


def capture(
    command: Sequence[str], cluster: Cluster, folder: Path, *, steps: int = 3, ranks: Sequence[int] = (),
    progress: Callable[[str], object] | None = None,
) -> CapturedJob:  # fmt: skip
    """Runs a training command on a cluster that isn't there, and writes what its ranks do into a folder.

    `steps`: steps of the optimizer, of which the last is the one that is looked at; `ranks`: which to run, by default rank 0, the
    last one, and those that rank 0 exchanges stages' messages with. `progress` is told what is done. SpecError for a command
    without a script; EngineError for a script that raised, with its last lines.
    """
    script = script_of(command)
    if steps < 1:
        raise SpecError("--steps", steps, "1 or more")
    world, local = cluster.gpus, min(cluster.gpus_of_node, cluster.gpus)
    tell = progress or (lambda _: None)
    library = device_library(tell)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(folder), error.strerror or str(error), "a folder that can be made", "Say another with --out.") from error
    plan = {
        "library": str(library), "script": script.script, "module": script.module, "arguments": script.arguments, "steps": steps,
        "world": world, "command": list(command), "cluster": cluster.id, "card": asdict(card_of(cluster)),
    }  # fmt: skip
    for rank in ranks:
        if not 0 <= rank < world:
            raise SpecError("--rank", rank, f"0 to {world - 1}")
    done: dict[int, CapturedRank] = {}
    waiting = list(ranks) or [0]
    while waiting:
        rank = waiting.pop(0)
        tell(f"running rank {rank} of {world}")
        done[rank] = _run_rank(plan | {"rank": rank, "out": str(folder / f"rank-{rank:06}.parquet")}, rank, world, local)
        if not ranks and len(done) == 1:
            waiting += [other for other in different_ranks(done[0], world) if other not in done]
    return CapturedJob(folder, tuple(done[rank] for rank in sorted(done)), world)


def card_of(cluster: Cluster) -> Card:
    """What the cluster's GPU says of itself. SpecError for a machine that PyTorch does not call `cuda`."""
    gpu = cluster.gpu
    capability = CAPABILITIES.get(gpu.architecture)
    if capability is None:
        raise SpecError("--on", cluster.id, "a cluster of GPUs that PyTorch calls cuda")
    name = gpu.names[0] if gpu.names else gpu.name
    return Card(name, capability, round(gpu.memory), gpu.sms or 132, min(cluster.gpus_of_node, cluster.gpus))


def different_ranks(first: CapturedRank, world: int) -> list[int]:
    """Ranks that do other work than rank 0: those of the groups in which it sends to or receives from another, and the last."""
    calls = first.entries[first.entries["kind"] == EntryKind.CALL]
    sends = [name in ("send", "recv") for name in first.texts]
    pairs = {int(call["c"]) >> 32 for call in calls if sends[call["name"]]}
    ranks = {rank for number in pairs for rank in first.about["groups"][number]["ranks"]}
    return sorted((ranks | {world - 1}) - {0})


def _run_rank(plan: dict[str, Any], rank: int, world: int, local: int) -> CapturedRank:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plan, file)
        file.flush()
        ran = subprocess.run(
            [sys.executable, "-m", "windtunnel.capture.rank", file.name], env={**os.environ, **variables_of(rank, world, local)},
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    out = Path(plan["out"])
    Path(out.with_suffix(".log")).write_text(ran.stdout + ran.stderr)
    if ran.returncode != 0:
        last = "\n".join(ran.stderr.strip().splitlines()[-12:])
        how = f"ended by signal {-ran.returncode}" if ran.returncode < 0 else "raised"
        raise EngineError(f"rank {rank} {how}; its output is in {out.with_suffix('.log')}:\n{last}")
    return read_captured(out)
