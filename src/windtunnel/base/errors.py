"""The errors that windtunnel raises on purpose.

    WindtunnelError
    ├── SpecError        a field of a job, a catalogue entry or an option is wrong   (exit 2)
    │   ├── UnknownName      a name that no registry or catalogue has                (exit 2)
    │   ├── FileError        a file that cannot be read or parsed                    (exit 2)
    │   └── PlanError        fields are fine one by one and contradict each other    (exit 2)
    ├── NotInstalled     a part of windtunnel that is in another wheel                (exit 2)
    ├── EngineError      a program that cannot make progress (a deadlock, a bad wait) (exit 1)
    └── OutOfMemory      the allocator replay finds no room (`memory.allocator`)      (exit 1)

Whatever a user types ends in one of these; a traceback of anything else is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class WindtunnelError(Exception):
    """Root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes as they are; their classes are made of other arguments than Exception keeps."""
        return _with_state, (type(self), self.args, self.__dict__)


def _with_state(kind: type[WindtunnelError], args: tuple[Any, ...], state: dict[str, Any]) -> WindtunnelError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class SpecError(WindtunnelError):
    """A wrong value at `path`: `got`, the `allowed` values, and a `hint` of what to write instead."""

    exit_code = 2

    def __init__(self, path: str, got: object, allowed: str, hint: str = "") -> None:
        self.path, self.got, self.allowed, self.hint = path, got, allowed, hint
        message = f"{path}: got {_format_got(got)}; allowed: {allowed}"
        super().__init__(f"{message}. {hint}" if hint else message)


class NotInstalled(WindtunnelError, ImportError):
    """A module was asked for that is in a wheel which is not installed: of the simulator, or of the oracles."""

    exit_code = 2


def explain_missing_module(error: ModuleNotFoundError) -> NotInstalled | None:
    """What to install for a module of windtunnel that is not there; None for a module of another package."""
    name = error.name or ""
    if name.partition(".")[0] == "windtunnel_oracles":
        return NotInstalled("what follows other simulators is not installed. Type: pip install 'windtunnel[oracles]'", name=name)
    if not name.startswith("windtunnel."):
        return None
    return NotInstalled(
        f"{name} is not in windtunnel-fleet, which is installed here alone. Type: pip install windtunnel", name=name
    )


class Nothing:
    """Stands for "no value was given" in a SpecError."""

    def __repr__(self) -> str:
        return "nothing"


def _format_got(got: object) -> str:
    """`repr`, cut to a line; values whose repr fails (integers of thousands of digits, endless nesting) show their type."""
    try:
        shown = repr(got)
    except (ValueError, RecursionError):
        return f"a {type(got).__name__} too large to print"
    return shown if len(shown) <= 80 else shown[:77] + "..."


class UnknownName(SpecError):
    """A name that is not in the list of known ones; the hint has the nearest known name, or the one that is `meant`, and
    what `more` there is to say."""

    def __init__(self, path: str, got: str, known: Sequence[str], meant: str | None = None, more: str = "") -> None:
        near = meant or nearest(got, known)
        listed = ", ".join(sorted(known)[:12]) + (", …" if len(known) > 12 else "")
        hint = " ".join(part for part in (f"Did you mean {near!r}?" if near else "", more) if part)
        super().__init__(path, got, listed or "(none)", hint)


STATE_A_MACHINE = (
    "Another GPU is stated from a near one: --on rtx-4090 --set cluster.node.gpu.memory=16GiB "
    "--set cluster.node.gpu.memory_bandwidth=0.7TB/s --set cluster.node.gpu.peak.bf16=80TFLOP/s --set cluster.node.gpus=2. "
    "docs/extend/gpu.md has the file of one."
)
"""How to say what the catalogue does not have."""


def unknown_machine(on: str, known: Sequence[str]) -> SpecError:
    """The error of an `--on` that names no machine. "512 H100" has a number of GPUs, which is a field of its own."""
    counted = re.fullmatch(r"\s*(\d+)(?:\s*[x×*]\s*|\s+)(\S.*)", on)
    near = nearest(counted[2], known) if counted else None
    if counted is None or near is None:
        return UnknownName("--on", on, known, more=STATE_A_MACHINE)
    hint = f"Write --on {near} --set cluster.gpus={counted[1]}."
    return SpecError("--on", on, "the name of a machine, without a number of GPUs", hint)


class FileError(SpecError):
    """A file that is missing, too large, not text, or does not parse."""


class PlanError(SpecError):
    """Fields that contradict each other, such as tp that does not divide the attention heads."""


class EngineError(WindtunnelError):
    """The engine cannot finish the program: a wait that nothing satisfies."""


SAME_OPTION = (
    ("concurrency", "users", "max-concurrency"), ("on", "cluster", "machine"), ("bytes", "size", "message-size"),
    ("gpus", "gpu", "num-gpus", "world-size"), ("isl", "input-len", "random-input-len"), ("osl", "output-len", "random-output-len"),
    ("weights", "quantization", "dtype"), ("kv", "kv-cache-dtype"), ("tp", "tensor-parallel-size"), ("rate", "request-rate"),
    ("micro-batch", "micro-batch-size"), ("batch", "batch-size", "global-batch-size"), ("seq", "seq-length", "seq-len"),
)  # fmt: skip
"""Words of the verbs, and of servers' and trainers' commands, for one option."""

LIKE_AN_OPTION = 0.7
"""Letters in common from which on an unknown option is taken for a misspelt one."""


def same_option(name: str, known: Iterable[str]) -> str | None:
    """The option that is `name` under another word, in the spelling of `known`."""
    options, word = {option.lstrip("-"): option for option in known}, name.lstrip("-")
    same = next((words for words in SAME_OPTION if word in words), ())
    return next((options[one] for one in same if one in options), None)


def nearest_option(name: str, known: Iterable[str]) -> str | None:
    """The option that is meant by `name`, in the spelling of `known`: the same under another word, else the closest."""
    options = {option.lstrip("-"): option for option in known}
    near = nearest(name.lstrip("-"), options, LIKE_AN_OPTION)
    return same_option(name, options.values()) or (None if near is None else options[near])


def nearest(name: str, known: Iterable[str], alike: float = 0.5) -> str | None:
    """The known name closest to `name`, or None if nothing is close. `alike`: the least ratio of letters in common, 0 to 1."""
    candidates = list(known)
    longer = [c for c in candidates if len(name) > 1 and c.lower().startswith(name.lower())]
    if longer:  # a name cut short, such as a100
        return min(longer, key=lambda c: (len(c), c))
    matches = get_close_matches(name, candidates, n=1, cutoff=alike)
    if matches:
        return matches[0]
    lowered = {c.lower().replace("_", "-"): c for c in candidates}
    matches = get_close_matches(name.lower().replace("_", "-"), list(lowered), n=1, cutoff=alike)
    return lowered[matches[0]] if matches else None
