"""The cases: a script, what is wrong with it, and what has to be named first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.outcome import Line


@dataclass(frozen=True)
class Cause:
    """A script with a fault. `ranks`: those that have it, () all of them. `verdicts`: the kinds of finding that say it."""

    name: str
    script: str
    fault: str
    ranks: tuple[int, ...]
    verdicts: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    blind: bool = False
    """Not looked at while the rules were made."""
    needs: str = ""
    """A package that the script imports and that may be missing."""


STARTS_RANKS = ("lit", "spawn", "processes")
"""Scripts that start their ranks themselves; the others are for torchrun."""
SLOW = ("slow rank",)
DATA, OUTSIDE, SAVE = ("late data",), ("outside of sections",), ("saving",)
GAPS = ("launch skew", "outside of sections", "slow rank")
CAUSES = (
    Cause("data, one rank", "ddp", "data", (3,), DATA),
    Cause("data, all ranks", "ddp", "data", (), DATA, blind=True),
    Cause("Python between steps, one rank", "ddp", "python", (1,), OUTSIDE),
    Cause("computing, one rank", "ddp", "compute", (2,), SLOW),
    Cause("real products of matrices, one rank", "ddp", "matmul", (0,), SLOW, blind=True),
    Cause("garbage collection, one rank", "ddp", "gc", (1,), GAPS),
    Cause("new memory in each forward, one rank", "ddp", "allocate", (3,), SLOW, blind=True),
    Cause("a slow log, all ranks", "ddp", "log", (), OUTSIDE),
    Cause("a save in each step, one rank", "ddp", "save", (0,), SAVE, blind=True),
    Cause("computing, accumulation of 3, one rank", "ddp", "compute", (1,), SLOW, {"ACCUMULATE": "3"}),
    Cause("FSDP2, computing, one rank", "fsdp", "compute", (2,), SLOW),
    Cause("FSDP2, data, one rank", "fsdp", "data", (0,), DATA, blind=True),
    Cause("FSDP2, Python between steps, all ranks", "fsdp", "python", (), OUTSIDE),
    Cause("pipeline, computing, one stage", "pipe", "compute", (2,), SLOW),
    Cause("pipeline, data of the first stage", "pipe", "data", (0,), DATA, blind=True),
    Cause("HF Trainer, computing, one rank", "hf", "compute", (1,), SLOW, needs="transformers"),
    Cause("HF Trainer, a callback, one rank", "hf", "python", (2,), OUTSIDE, blind=True, needs="transformers"),
    Cause("Lightning, data, one rank", "lit", "data", (1,), DATA, needs="lightning"),
    Cause("torch.compile, computing, one rank", "ddp", "compute", (3,), SLOW, {"COMPILE": "1"}, blind=True),
    Cause("torch.compile, a slow log, one rank", "ddp", "log", (2,), OUTSIDE, {"COMPILE": "1"}),
    Cause("Lightning, garbage collection, all ranks", "lit", "gc", (), GAPS, {"STEPS": "20"}, needs="lightning"),
    Cause("mp.spawn, a generator of batches, one rank", "spawn", "data", (0,), (*OUTSIDE, *DATA), blind=True),
    Cause("mp.spawn, computing, one rank", "spawn", "compute", (3,), SLOW, blind=True),
    Cause("Accelerate, a collate function, one rank", "accelerated", "data", (2,), DATA, blind=True, needs="accelerate"),
    Cause("Accelerate, Python in the loop, all ranks", "accelerated", "python", (), OUTSIDE, blind=True, needs="accelerate"),
    Cause("two models and optimizers, a slow loss, one rank", "gan", "loss", (1,), OUTSIDE, blind=True),
    Cause("two models and optimizers, a save in each step, all ranks", "gan", "log", (), OUTSIDE, blind=True),
    Cause("tensor parallelism by DTensor, computing, one rank", "tensor", "compute", (2,), SLOW, blind=True),
    Cause("tensor parallelism by DTensor, batches, one rank", "tensor", "data", (1,), (*OUTSIDE, *DATA), blind=True),
    Cause("hooks that reduce gradients, computing, one rank", "hooks", "compute", (0,), SLOW, blind=True),
    Cause("hooks that reduce gradients, a slow schedule, one rank", "hooks", "schedule", (3,), OUTSIDE, blind=True),
)  # fmt: skip
CLEAN = tuple(dict.fromkeys((one.script, tuple(sorted(one.settings.items())), one.needs) for one in CAUSES))
"""Scripts without a fault: (script, settings, what they need)."""
COUNT_CLEAN = 20


@dataclass(frozen=True)
class End:
    """A rank that ends or stands still. `told`: what the report has to say of rank `WHO`, as a regular expression."""

    name: str
    how: str
    told: str
    hangs: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    kept: str = ""
    """The same of a driver's incident, where its words are others."""
    script: str = "ends"
    """Another one than "ends" starts its ranks itself."""


WHO = 2
ENDS = (
    End("an exception", "raise", r"raised ValueError: tokenizer shard 17 is corrupt \(ends\.py:\d+ in load\)"),
    End("an exception in the forward", "forward", r"raised RuntimeError: activation has NaN \(ends\.py:\d+ in forward\)"),
    End("an exception in a hook of the backward", "hook", r"raised ArithmeticError: gradient overflow \(ends\.py:\d+ in check\)"),
    End("an exception at import", "import", r"raised ModuleNotFoundError: No module named 'not_a_module'"),
    End("an exception before torch is imported", "early", r"raised ModuleNotFoundError: No module named 'not_a_module'"),
    End("an exception of a loader's worker", "worker",
        r"raised RuntimeError: record \d+ is truncated \(ends\.py:\d+ in __getitem__"),
    End("a loader's worker is killed", "workerkill",
        r"raised RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed"),
    End("an exception in atexit", "atexit", r"raised OSError: cannot flush metrics \(ends\.py:\d+ in flush\) as it ended"),
    End("sys.exit(3)", "exit", r"ended with exit status 3 by sys\.exit at ends\.py:\d+ in load"),
    End("SystemExit(4)", "systemexit", r"ended with exit status 4"),
    End("sys.exit in a handler", "caught", r"exit status 5 by sys\.exit at ends\.py:\d+ in load, after KeyError: 'vocab'"),
    End("os._exit(9)", "_exit", r"ended with exit status 9 by os\._exit at ends\.py:\d+ in load"),
    End("a segfault", "segfault", r"was ended by SIGSEGV \(ends\.py:\d+ in load\)"),
    End("abort", "abort", r"was ended by SIGABRT \(ends\.py:\d+ in load\)"),
    End("SIGKILL", "kill", r"was ended by SIGKILL"),
    End("memory runs out", "memory", r"was ended by SIGKILL \(the kernel (killed it|has killed \d+ .*) because memory ran out\)"),
    End("an exception in a raw process of Python, by fork", "raise",
        r"raised ValueError: tokenizer shard 17 is corrupt \(ends\.py",
        settings={"METHOD": "fork"}, script="processes"),
    End("an exception in a raw process of Python, by spawn", "raise",
        r"raised ValueError: tokenizer shard 17 is corrupt \(ends\.py",
        settings={"METHOD": "spawn"}, script="processes"),
    End("SIGTERM to one rank", "term", r"was ended by SIGTERM"),
    End("a rank returns early", "return", r"ended with exit status 0 in step \d+, while",
        kept=r"ended with exit status 0 in step \d+, [\d.]+ s ago, while others trained"),
    End("another operation", "operation",
        r"called all_reduce of 28 bytes as call \d+ of world .*called broadcast from 0 of 12 bytes", True),
    End("another size", "size", r"called all_reduce of 28 bytes as call \d+ of world .*called all_reduce of 12 bytes", True),
    End("another root", "root", r"called broadcast from 1 of 12 bytes .*called broadcast from 0 of 12 bytes", True),
    End("another order", "order", r"called broadcast from 0 of 12 bytes .*called all_reduce of 28 bytes", True),
    End("another type of numbers", "dtype", r"called all_reduce float64 of 56 bytes .*called all_reduce of 28 bytes", True),
    End("another group", "group", r"is in all_reduce \d+ of .*, where ranks 0, 1 and 3 are in all_reduce \d+ of world", True),
    End("a collective too few", "skip", r"has not begun|ended with exit status 0 in step|called ", True),
    End("SIGSTOP", "stop", r"its process is stopped", True, kept=r"its process has been stopped for"),
    End("a loop without end", "loop", r"has not begun all_reduce|it is in Python between sections", True),
    End("a thread that fills a queue raises", "thread", r"prefetch raised ValueError: bad record", True),
)  # fmt: skip

ENDS_KEPT = tuple(one for one in ENDS if one.script == "ends")

LINES = (
    Line(
        "causes",
        "scripts of 4 ranks (DDP, FSDP2, pipelining, HF Trainer, Lightning, torch.compile) with one thing wrong in each; "
        "right: named first, with its rank",
        len(CAUSES),
        "causes",
    ),
    Line(
        "causes-clean",
        "the same scripts without a fault, beside other work on the machine; nothing may be named",
        COUNT_CLEAN,
        "causes",
    ),
    Line("ends-kept", "the same under a driver (`--nodes 2 --nproc-per-node 2`); right: the incident and the terminal name it so",
         len(ENDS_KEPT), "causes"),
    Line("ends", "a rank raises, exits, is killed, stands still, or calls another collective; right: named, with rank and reason",
         len(ENDS), "causes"),
)  # fmt: skip
