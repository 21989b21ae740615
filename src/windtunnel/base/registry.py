"""A registry: members by name, each in a module of its own that is imported when the member is first asked for.

Members of other packages are found by their entry points, so that a package of one's own can add one:

    [project.entry-points."windtunnel.rl_modes"]
    toy = "my_package.toy:TOY"

They are looked for when a name is asked for that the project does not have, or when all names are listed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

from windtunnel.base.errors import UnknownName

T = TypeVar("T")


@cache
def offered_by_packages(group: str) -> dict[str, Any]:
    """Name -> member of the group `windtunnel.GROUP`, as installed packages offer it by their entry points."""
    return {name: load_member(place) for name, place in _entry_points().get(group, {}).items()}


def load_member(place: str) -> Any:
    """What "module:attribute" names, or the module where there is no attribute."""
    module, _, attribute = place.partition(":")
    member: Any = import_module(module.strip())
    for part in filter(None, attribute.strip().split(".")):
        member = getattr(member, part)
    return member


@cache
def _entry_points() -> dict[str, dict[str, str]]:
    """Group below "windtunnel." -> name -> "module:attribute" of every installed package.

    `importlib.metadata` reads all that every package states, and costs a short command 20 ms. Here only files that name a group of
    ours are read further.
    """
    groups: dict[str, dict[str, str]] = {}
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                stated = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for path in stated:
            try:
                with open(os.path.join(path, "entry_points.txt"), encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            if "[windtunnel." in text:
                _add_entry_points(text, groups)
    return groups


def _add_entry_points(text: str, groups: dict[str, dict[str, str]]) -> None:
    """Adds what an `entry_points.txt` offers; what is first on the path wins, as in an import."""
    group: dict[str, str] | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            ours = line.startswith("[windtunnel.") and line.endswith("]")
            group = groups.setdefault(line[len("[windtunnel.") : -1], {}) if ours else None
        elif group is not None and "=" in line and not line.startswith(("#", ";")):
            name, _, place = line.partition("=")
            group.setdefault(name.strip(), place.split("[")[0].strip())


class Registry(Mapping[str, T], Generic[T]):
    """Name -> member. `group`: of entry points, behind "windtunnel."; `noun`: what a member is, in errors; `members`: name of each
    of the project's own -> "module:attribute", with the module below `windtunnel`."""

    def __init__(self, group: str, noun: str, members: Mapping[str, str]) -> None:
        self._group, self._noun, self._own = group, noun, dict(members)
        self._loaded: dict[str, T] = {}

    @property
    def _from_packages(self) -> dict[str, str]:
        """Members of other packages, each as "module:attribute"; a name of the project's own is not theirs to take."""
        return {name: place for name, place in _entry_points().get(self._group, {}).items() if name not in self._own}

    def __getitem__(self, name: str) -> T:
        """The member. KeyError for a name that nothing has."""
        if name not in self._loaded:
            own = self._own.get(name)
            self._loaded[name] = load_member(self._from_packages[name] if own is None else f"windtunnel.{own}")
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._from_packages

    def __iter__(self) -> Iterator[str]:
        """All names: the project's own in their order, and then those of other packages, which are looked for no sooner."""
        yield from self._own
        yield from self._from_packages

    def __len__(self) -> int:
        return len(self._own) + len(self._from_packages)

    @property
    def own_members(self) -> dict[str, T]:
        """The project's own members by name."""
        return {name: self[name] for name in self._own}

    @property
    def default(self) -> str:
        """The name of the member that one gets who names none: the first."""
        return next(iter(self._own))

    @property
    def own_words(self) -> str:
        """The project's own names in words, for a help."""
        return _either(list(self._own))

    def in_order(self, names: Collection[str]) -> list[str]:
        """Those of `names`, in the order of the registry."""
        own = [name for name in self._own if name in names]
        return own if len(own) == len(names) else [*own, *(name for name in self._from_packages if name in names)]

    def find(self, name: str, path: str = "") -> T:
        """The member. UnknownName, said of `path`, for a name that nothing has."""
        if name not in self:
            raise UnknownName(path or self._noun, name, list(self))
        return self[name]

    def add_names(self, schema: dict[str, Any]) -> None:
        """Adds the names to the JSON Schema of a field."""
        schema["enum"] = list(self)

    def check(self, value: Any) -> str:
        """`value`, if it is a name: a validator of pydantic. ValueError with the names for another one."""
        if not isinstance(value, str) or value not in self:
            raise ValueError(f"Input should be {_either([repr(name) for name in self])}")
        return value


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
