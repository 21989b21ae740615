"""Megatron-LM's command line as values by flag, with a record of what was read and what was not."""

from __future__ import annotations

import re

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError, nearest
from windtunnel.formats.jobs.imported import CommandLine, Stated
from windtunnel.formats.jobs.keys import is_harmless
from windtunnel.formats.jobs.launched import Launched, launcher_of
from windtunnel.formats.jobs.megatron.flags import FLAG_OF, KINDS, LAUNCHER, OLD_NAMES, SHORTER
from windtunnel.formats.jobs.scripts.command import ScriptCommands, ShellCommand, launch
from windtunnel.formats.jobs.scripts.missing_arguments import OpenQuestions

_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"\$\w+|\$\{\w+(?:\[[@*]\])?\}")
_LARGEST = 10**12
_LONGEST_FLAG = 100

_MAY_BE_OPEN = frozenset({"train-iters", "train-samples", "world-size"})
"""How long a run is, on which no second of a step depends; and the number of GPUs, which the machine has too."""

_TORCHRUN = {"per-node": "--nproc-per-node", "nodes": "--nnodes"}
_OF_THE_MACHINE = ("world-size",)
"""Flags that say how many GPUs there are, which the launcher says."""

MOST_SUGGESTIONS = 50
"""Unknown flags whose nearest known one is looked for: the search takes milliseconds each."""


@dataclass
class Arguments:
    """Flags by today's name without dashes in front; every getter marks its flag as used. `program`: the file that takes them;
    `written`, `stated` and `spelled`: as `CommandLine` has them; `software`: the catalogue's framework and its version where
    another tool's defaults hold, else Megatron's."""

    given: dict[str, list[str]]
    launcher: Launched = field(default_factory=Launched)
    unknown: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    assumed: list[str] = field(default_factory=list)
    old_names: list[str] = field(default_factory=list)
    program: str = ""
    written: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    software: tuple[str, str] | None = None

    def command_line(self) -> CommandLine | None:
        """The flags as they were typed; None where another reader wrote them."""
        return CommandLine(self.written, self.stated, self.spelled, self.program) if self.written else None

    def has(self, flag: str) -> bool:
        return flag in self.given

    def switch(self, flag: str) -> bool:
        """Whether a flag that takes no value is there."""
        if flag in self.given:
            self.used.add(flag)
            return True
        return False

    def text(self, flag: str) -> str | None:
        values = self.words_of(flag)
        if values == []:
            raise SpecError(f"--{flag}", Nothing(), "a value after the flag")
        return " ".join(values) if values else None

    def words_of(self, flag: str) -> list[str] | None:
        if flag not in self.given:
            return None
        self.used.add(flag)
        return self.given[flag]

    def integer(self, flag: str) -> int | None:
        """The flag's whole number, None where the flag is left out; SpecError for anything else."""
        text = self.text(flag)
        if text is None:
            return None
        if not re.fullmatch(r"\+?[0-9](?:_?[0-9]){0,14}", text) or int(text) > _LARGEST:
            where = next((path for path, one in FLAG_OF.items() if one == flag), None)
            hint = f"The variable in {text} is not set in this text." if "$" in text else ""
            hint += f" --set {where}=N states the value." if hint and where is not None else ""
            raise SpecError(f"--{flag}", text, "a whole number", hint)
        return int(text)

    def required_count(self, flag: str) -> int:
        value = self.integer(flag)
        if value is None:
            raise SpecError(f"--{flag}", Nothing(), "a whole number of 1 or more; Megatron-LM requires this flag")
        if value < 1:
            raise SpecError(f"--{flag}", value, "a whole number of 1 or more")
        return value

    def number(self, flag: str) -> float | None:
        text = self.text(flag)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            raise SpecError(f"--{flag}", text, "a number") from None

    def state(self, stated: Stated) -> None:
        """Puts what a user states in place of its flags."""
        for path, flag in FLAG_OF.items():
            if (value := stated.whole_number(path)) is not None:
                self.given[flag] = [str(value)]

    def left_over(self) -> list[str]:
        """Flags that changed nothing: unknown ones, and known ones that no rule looked at."""
        idle = [f"--{flag}" for flag in self.given if flag not in self.used and flag in KINDS]
        return sorted(set(self.unknown) | set(idle))


def parse(text: str, where: str, stated: Stated | None = None) -> Arguments:
    """The flags in `text`, a command line or a launch script.

    Flags before the training script (`….py`) belong to the launcher. Old names become today's; a flag given twice keeps the
    last value, as argparse does; a field that the user states beats its flag. Raises `SpecError` where there is no flag at all.
    """
    stated = stated or Stated()
    found, asked = launch(text, where, stated.arguments, stated.environment, stated.script)
    listed = _split(found)
    if not listed:
        raise SpecError(where, text.strip()[:60], "Megatron-LM flags such as --num-layers 24")
    launcher = _launcher_of(listed, text, where, stated)
    arguments = Arguments({}, launcher, program=next((values[0] for flag, values in listed if flag == ".py"), ""))
    for flag, values in listed:
        if flag == ".py" or flag in LAUNCHER:
            continue
        flag = SHORTER.get(flag, flag)
        name = OLD_NAMES.get(flag, flag)
        if name != flag:
            arguments.old_names.append(flag)
            arguments.spelled[name] = flag
        if name not in KINDS:
            arguments.unknown.append(_unknown(flag, values, len(arguments.unknown) < MOST_SUGGESTIONS))
            arguments.given[name] = values
            continue
        if KINDS[name] == "switch" and values and values[0].lower() in ("false", "0", "no"):
            continue
        values = values[:1] if KINDS[name] in ("int", "float") else _without_unset(values)
        arguments.given[name] = values
    arguments.written = {flag: tuple(values) for flag, values in arguments.given.items() if flag not in _OF_THE_MACHINE}
    arguments.state(stated)
    arguments.stated = {flag: tuple(values) for flag, values in arguments.given.items() if flag not in _OF_THE_MACHINE}
    _settle(arguments, asked)
    return arguments


def _unknown(flag: str, values: list[str], suggests: bool) -> str:
    """An unknown flag with its words, and the known one that it may stand for unless it is known to change nothing."""
    told = f"--{flag} {' '.join(values)[:60]}".rstrip()
    near = nearest(flag, KINDS) if suggests and len(flag) <= _LONGEST_FLAG and not is_harmless(told, "megatron") else None
    return f"{told} (is it --{near}?)" if near and _alike(flag, near) else told


def _settle(arguments: Arguments, asked: OpenQuestions) -> None:
    """Refuses what a script has to be told; flags that may stay open are left out where it does not know their values."""
    for flag in _MAY_BE_OPEN:
        if "$" in " ".join(arguments.given.get(flag, [])):
            del arguments.given[flag]
            arguments.assumed.append(f"no --{flag}: the script is not told")
    read = frozenset(KINDS) - _MAY_BE_OPEN | frozenset(OLD_NAMES)
    valued = {flag: values for flag, values in arguments.given.items() if KINDS.get(flag, "switch") != "switch"}
    asked.check({flag: values[:1] for flag, values in valued.items() if flag != "tokenizer-type"}, read)
    arguments.assumed.extend(asked.notes())
    if asked.files:
        arguments.assumed.append(f"what {', '.join(asked.files)} says, which the script reads or starts")


def _without_unset(values: list[str]) -> list[str]:
    """Words behind a flag without variables of options that are not set, which a shell leaves out."""
    return values[:1] + [word for word in values[1:] if not _VARIABLE.fullmatch(word)]


def _split(listed: list[str]) -> list[tuple[str, list[str]]]:
    """(flag, its words) in order; a word that names a Python script is the pseudo flag `.py`."""
    flags: list[tuple[str, list[str]]] = []
    for word in listed:
        head, equals, value = word.partition("=")
        if _FLAG.fullmatch(head):
            flags.append((head[2:].replace("_", "-"), [value] if equals else []))
        elif word.endswith(".py"):
            flags.append((".py", [word]))
        elif flags and flags[-1][0] != ".py":
            flags[-1][1].append(word)
    return flags


def _launcher_of(listed: list[tuple[str, list[str]]], text: str, where: str, stated: Stated) -> Launched:
    """What starts the processes: the words of the command with the most flags before its program, and the script's variables; of
    flags alone those that are a launcher's."""
    if not text.lstrip().startswith("--"):
        folder = stated.script.parent if stated.script is not None else None
        script = ScriptCommands(text, where, stated.arguments, stated.environment, stated.script)
        chosen: ShellCommand = max(
            script.commands, key=lambda words: sum(word.startswith("--") for word in words), default=ShellCommand([], {})
        )
        end = next((place for place, word in enumerate(chosen) if word.endswith(".py") or word in ("megatron", "swift")), 0)
        found = launcher_of(chosen[:end] or chosen, {**script.variables, **chosen.own}, folder)
        if found != Launched():
            return found
    flags = {LAUNCHER[flag]: values[0] for flag, values in listed if flag in LAUNCHER and values}
    return launcher_of(["torchrun", *(word for flag, value in flags.items() for word in (_TORCHRUN[flag], value))], {})


def _alike(flag: str, known: str) -> bool:
    """Whether an unknown flag looks like a slip of the pen rather than a flag of its own."""
    return abs(len(flag) - len(known)) <= 2 and sum(a != b for a, b in zip(flag, known, strict=False)) <= 3
