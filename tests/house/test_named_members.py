"""A member of a registry is named in its folder and in its registry alone; who asks for its name elsewhere would have to learn of
each new one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.registry import Registry
from windtunnel.network.algorithm import ALGORITHMS
from windtunnel.rl.mode import MODES
from windtunnel.serving.engine import ENGINES
from windtunnel.spec.mixer import MIXERS, Mixer

SRC = Path(__file__).parents[2] / "src" / "windtunnel"

REGISTRIES: dict[str, tuple[str, Registry[Any]]] = {
    "rl/mode.py": ("rl/modes/", MODES),
    "serving/engine.py": ("serving/engines/", ENGINES),
    "spec/mixer.py": ("workload/mixers/", MIXERS),
    "network/algorithm.py": ("network/algorithms/", ALGORITHMS),
}
"""File of a registry -> the folder of its members, and the registry."""

EXCEPTIONS = {
    ("formats/*", "*"): "words of other tools' files",
    ("exports/*", "*"): "words of other tools' files",
    ("calibrate/*", "*"): "names of measured data and of files of constants; split is a name of rows that test",
    ("reality/score/collectives.py", "ring"): "a word of tables of measurements",
    ("search/levers/*", "p2p"): "a way of context parallelism",
    ("spec/*", "p2p"): "a way of context parallelism",
    ("fleet/collect/*", "ring"): "a file of records",
    ("fleet/startup/*", "hierarchical"): "a store of process groups",
    ("network/grids/*", "ring"): "a kind of a machine's dimension",
    ("network/closed/grid.py", "ring direct hierarchical"): "kinds of a machine's dimensions, and what answers call calls there",
    ("network/closed/dimensions.py", "ring"): "a kind of a machine's dimension",
    ("network/lanes/grid_lanes.py", "ring"): "a kind of a machine's dimension",
    ("network/fabrics/ndim.py", "ring"): "a kind of a machine's dimension",
    ("network/flows/flow_list.py", "ring"): "a pattern of plain flows",
    ("network/nccl/search.py", "ring tree nvls"): "graphs of NCCL's search, which its files name",
}
"""(pattern of files, names that they may say) -> what the words mean there."""


def named(registry: str) -> Iterator[tuple[str, int, str]]:
    """(file, line, name) of each string outside of the folder and the registry that is a member's name."""
    folder, members = REGISTRIES[registry]
    quoted = re.compile(rf"""['"]({"|".join(map(re.escape, members.own_members))})['"]""")
    for path in sorted(SRC.rglob("*.py")):
        place = path.relative_to(SRC).as_posix()
        text = path.read_text(encoding="utf-8")
        if place == registry or place.startswith(folder) or quoted.search(text) is None:  # parsing every file would take a minute
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in members.own_members:
                yield place, node.lineno, node.value


def covers(exception: tuple[str, str], place: str, name: str) -> bool:
    pattern, names = exception
    return fnmatch(place, pattern) and (names == "*" or name in names.split())


@pytest.mark.parametrize("registry", REGISTRIES)
def test_no_member_is_named_elsewhere(registry: str) -> None:
    wrong = [(place, line, name) for place, line, name in named(registry) if not any(covers(e, place, name) for e in EXCEPTIONS)]
    assert not wrong, "ask the member instead: it brings what others have to know of it"


def test_each_exception_is_needed() -> None:
    places = {(place, name) for registry in REGISTRIES for place, _, name in named(registry)}
    assert [e for e in EXCEPTIONS if not any(covers(e, place, name) for place, name in places)] == []


@pytest.mark.parametrize("registry", REGISTRIES)
def test_each_member_lies_in_the_folder(registry: str) -> None:
    folder, members = REGISTRIES[registry]
    room = "windtunnel." + folder.rstrip("/").replace("/", ".")
    assert all(type(member).__module__.startswith(room) for member in members.own_members.values())


@pytest.mark.parametrize("which", ["letter", "alone"])
def test_a_letter_means_one_mixer_in_a_model(which: str) -> None:
    """Else the first is taken in silence."""
    sharing: dict[str, list[str]] = {}
    for name, mixer in MIXERS.own_members.items():
        sharing.setdefault(getattr(mixer, which), []).append(name)
    several = {letter: names for letter, names in sharing.items() if letter and len(names) > 1}
    wrong = {letter: names for letter, names in several.items() if any(type(MIXERS[name]).suits is Mixer.suits for name in names)}
    assert wrong == {}, f"another `{which}`, or `suits` in each that has it"
