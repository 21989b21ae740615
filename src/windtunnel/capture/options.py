"""What `capture` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.spec.machine import Cluster


@dataclass(frozen=True)
class CaptureOptions:
    """A training command on a cluster that isn't there."""

    command: Sequence[str] = argument("The command that trains, after --.", metavar="-- COMMAND...")
    cluster: str | Cluster = option("The cluster that the command believes in.", word="--on", metavar="CLUSTER", offers="machines")
    gpus: int | None = option("Its GPUs; default: those of the cluster.", None, least=1)
    _: KW_ONLY
    steps: int = option("Optimizer steps to run; the last one is looked at.", 3, least=1)
    ranks: Sequence[int] = option("Ranks to run; default: those that differ.", (), word="--ranks", metavar="N,...", commas=True)
    network: str = shared.network()
    out: str | Path = option("Folder for what is recorded, a file a rank.", "captured", word="--out", short="-o", metavar="DIR")
    progress: Callable[[str], object] | None = option("Called with what is done.", None, shown=False)


@dataclass(frozen=True)
class CaptureCommandOptions(CaptureOptions):
    """The same for the command line."""

    sets: Sequence[str] = option("Change a field of the cluster.", (), word="--set", metavar="KEY=VALUE")
    against: str | None = option("Show what the framework does beside our graph of a job of as many GPUs.", None, metavar="JOB")


@dataclass(frozen=True)
class HostOptions:
    """What a framework's process spends on a step, measured on this machine without a GPU."""

    what: Sequence[str] = argument("A preset (fsdp, fsdp2, deepspeed, huggingface), a folder of `capture`, or a command after --.",
                                   metavar="PRESET|CAPTURED|-- COMMAND...")  # fmt: skip
    _: KW_ONLY
    framework: str | None = option("Framework whose costs of a launch and a call are kept; default: the preset's.", None,
                                   metavar="NAME")  # fmt: skip
    host_speed: float = option("This machine's cluster.node.host_speed, to which seconds are scaled.", 1.0, least=0.01)
    steps: int = option("Optimizer steps to run; the shortest parts count.", 30, least=4)
    cluster: str = option("The cluster that the command believes in.", "h100-ib", word="--on", metavar="CLUSTER", offers="machines")
    gpus: int = option("Its GPUs.", 8, least=1)
    out: str | None = option(
        "Write it for --set runtime.host=FILE.", None, word="--out", short="-o", metavar="FILE.toml", writes=True
    )
    progress: Callable[[str], object] | None = option("Called with what is done.", None, shown=False)
