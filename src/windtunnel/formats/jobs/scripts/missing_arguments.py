"""What a launch script wants to be told when it is started, and was not: positional parameters, by the variables they go to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError, UnknownName, nearest
from windtunnel.formats.jobs.scripts.values import Compared, open_positions

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_MOST_VALUES = 24
_MOST_NAMES = 1000
_A_NUMBER = "a whole number"


def unset_names(text: str) -> list[str]:
    """The variables that a text still names, each once."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))


@dataclass(frozen=True)
class PassedBranch:
    """An `if` or a `case` that took no branch: what it compared, the variables that its branches set, and the flags in them.

    `needed`: it lists two values or more, so that one of them is meant; a lone `if` may well be passed over.
    """

    compared: tuple[Compared, ...]
    sets: frozenset[str]
    flags: frozenset[str]
    needed: bool


@dataclass
class OpenQuestions:
    """What a script's walk left open. `copies` are the variables that positional parameters go to, `names` all that it sets.

    Of the names that stand before the script, `overruled` are those that it sets itself, `unread` those that it never looks at.
    `files`: other scripts that it names and that were read, seen from its folder.
    """

    where: str
    copies: Mapping[int, str] = field(default_factory=dict)
    choices: list[PassedBranch] = field(default_factory=list)
    overruled: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def check(self, given: Mapping[str, Sequence[str]], read: frozenset[str]) -> None:
        """Passes if the flags `given` are settled. `read` are the flags that change a job, and `given` holds their words.

        SpecError names every parameter that a flag or a choice needs, with its values; UnknownName a value that no branch has.
        """
        unset = {name for words in given.values() for word in words for name in unset_names(word)}
        wanted: dict[int | str, dict[str, None]] = {}
        needed = False
        for choice in self.choices:
            if not (choice.sets & unset or choice.flags & read):
                continue
            for one in choice.compared:
                if one.value is None and (isinstance(one.subject, int) or choice.needed and choice.sets & unset):
                    wanted.setdefault(one.subject, {}).setdefault(_A_NUMBER if one.option is None else one.option or "nothing")
                    needed = needed or choice.needed
        for flag, words in given.items():
            for position in open_positions(" ".join(words)):
                wanted.setdefault(position, {}).setdefault(f"the value of --{flag}")
                needed = True
        if needed:
            raise self._refusal(wanted)
        self._check_values(unset)

    def notes(self) -> list[str]:
        """What was assumed of parameters that were not given."""
        lone = {one.subject for c in self.choices for one in c.compared if isinstance(one.subject, int) and one.value is None}
        listed = [f"nothing for {self.label(position)}, which the script compares" for position in sorted(lone)]
        listed += [f"the script's own {name}, which it sets whatever stands before it" for name in self.overruled]
        for name in self.unread[:_MOST_VALUES]:
            near = nearest(name[:100], self.names[:_MOST_NAMES])
            listed.append(f"nothing of {name}: the script does not read it" + (f" (is it {near}?)" if near else ""))
        return listed

    def label(self, position: int | str) -> str:
        """A positional parameter by its variable, `TP ($3)`; a variable of the environment by its name."""
        if isinstance(position, str):
            return position
        plain = f"${position}" if position < 10 else f"${{{position}}}"
        return f"{self.copies[position]} ({plain})" if position in self.copies else plain

    def _refusal(self, wanted: Mapping[int | str, Mapping[str, None]]) -> SpecError:
        order = sorted(wanted, key=lambda one: (isinstance(one, str), one))
        lines = [f"{self.label(one)}: {_either(list(wanted[one]))}" for one in order]
        script = self.where.rsplit("/", 1)[-1]
        names = {one: one if isinstance(one, str) else self.copies.get(one, "") for one in order}
        named = [f"{names[one]}={_example(wanted[one])}" for one in order if names[one]]
        hint = f'Give the words that start it, in quotes: "{script} $1 $2 …"'
        hint += f', or by name: "{" ".join(named)} {script}".' if len(named) == len(order) else "."
        return SpecError(self.where, Nothing(), "what the script is started with: " + "; ".join(lines), hint)

    def _check_values(self, unset: set[str]) -> None:
        """UnknownName for a value of the user's that no branch has, where a flag lacks what the branches set."""
        names = {name: position for position, name in self.copies.items()}
        for choice in self.choices:
            options = [one.option for one in choice.compared if one.option]
            for one in choice.compared:
                if choice.sets & unset and choice.needed and one.value and one.option:
                    subject = one.subject if isinstance(one.subject, int) else names.get(one.subject, one.subject)
                    raise UnknownName(self.label(subject), one.value, options)


def _either(values: Sequence[str]) -> str:
    listed = list(values[:_MOST_VALUES]) + ["…"] * (len(values) > _MOST_VALUES)
    return ", ".join(listed)


def _example(values: Mapping[str, None]) -> str:
    first = next(iter(values))
    return "N" if " " in first or not first else first
