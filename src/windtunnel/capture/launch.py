"""The command that trains, as its launcher would start it: script, arguments and the variables of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import Nothing, SpecError


@dataclass(frozen=True)
class Script:
    """What each rank runs: a file, or a module where `module`; and the words of its launcher."""

    script: str
    module: bool
    arguments: tuple[str, ...]
    launcher: tuple[str, ...]


def script_of(command: Sequence[str]) -> Script:
    """The script of a command of torchrun, python, accelerate or deepspeed. SpecError for a command without one."""
    words = list(command)
    at = 0
    while at < len(words):
        word = words[at]
        if word.endswith(".py"):
            if not Path(word).is_file():
                raise SpecError("COMMAND", word, "a script that is there")
            return Script(word, False, tuple(words[at + 1 :]), tuple(words[:at]))
        if word in ("-m", "--module") and at + 1 < len(words):
            if words[at + 1] in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"):
                at += 2
                continue
            return Script(words[at + 1], True, tuple(words[at + 2 :]), tuple(words[:at]))
        at += 1
    raise SpecError(
        "COMMAND", " ".join(words) or Nothing(), "a command with a Python script",
        "Type: windtunnel capture --on h100-ib --gpus 64 -- torchrun --nproc-per-node 8 train.py",
    )  # fmt: skip


def variables_of(rank: int, world: int, local: int) -> dict[str, str]:
    """What torchrun sets for a rank of `world`, `local` on each node."""
    node = rank // local
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(-(-world // local)), "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(world),
        "NODE_RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "capture",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }  # fmt: skip


def variables_of_accelerate(launcher: Sequence[str]) -> dict[str, str]:
    """What `accelerate launch` sets for its ranks, by its own code; nothing for another launcher. Needs torch to be loaded."""
    words = list(launcher)
    if "launch" in words and any(word.endswith("accelerate") for word in words):
        words = words[words.index("launch") + 1 :]
    elif "accelerate.commands.launch" in words:
        words = words[words.index("accelerate.commands.launch") + 1 :]
    else:
        return {}
    parser = import_module("accelerate.commands.launch")
    asked, *_ = parser._validate_launch_command(parser.launch_command_parser().parse_args([*words, "script.py"]))
    named = import_module("accelerate.utils.launch").prepare_multi_gpu_env(asked)
    return {name: value for name, value in named.items() if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))}
