"""`windtunnel.base.dataclasses` declares what Python's own decorator declares."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.dataclasses import KW_ONLY, dataclass, field, replace

SOURCE = Path(__file__).parents[2] / "src" / "windtunnel"
Decorator = Callable[..., Any]


def _point(of: Decorator) -> Any:
    @of(frozen=True)
    class Point:
        """A point."""

        x: int
        y: float = 2.0
        names: list[str] = field(default_factory=list, compare=False)
        _: KW_ONLY
        unit: str = "m"
        hidden: int = field(default=7, repr=False, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "y", self.y + 1)

    return Point


def _open(of: Decorator) -> Any:
    @of
    class Open:
        """Fields that can be written; `made` has no parameter."""

        x: int
        made: dict[str, int] = field(init=False, default_factory=dict)
        given: int = field(init=False, default=3)

    return Open


def _one(of: Decorator) -> Any:
    @of(frozen=True)
    class One:
        """One field."""

        x: int

    return One


def _none(of: Decorator) -> Any:
    @of(frozen=True)
    class Empty:
        """No field."""

    return Empty


def _derived(of: Decorator) -> Any:
    @of(frozen=True)
    class Derived(_one(of)):  # type: ignore[misc]
        """A field more than its base."""

        y: int = 4

    return Derived


def _own(of: Decorator) -> Any:
    @of(frozen=True)
    class Own:
        """Methods of its own."""

        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.x % 2 == other.x % 2

        def __hash__(self) -> int:
            return self.x % 2

        def __repr__(self) -> str:
            return "own"

    return Own


CASES = [_point, _open, _one, _none, _derived, _own]
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((3,), {}), ((1, 5), {}), ((1, 5.0, ["a"]), {"unit": "s"}), ((1,), {"hidden": 8}), ((), {"x": 1}),
    ((1, 2, 3, 4), {}), ((1,), {"z": 1}),
]  # fmt: skip


def _made(cls: Any) -> list[Any]:
    """An object for each of ARGUMENTS, or the text of the error."""
    found: list[Any] = []
    for given, named in ARGUMENTS:
        try:
            found.append(cls(*given, **named))
        except TypeError as error:
            found.append(str(error).replace(f"{cls.__qualname__}.", ""))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_objects_are_as_pythons(case: Callable[[Decorator], Any]) -> None:
    ours, pythons = case(dataclass), case(dataclasses.dataclass)
    assert str(inspect.signature(ours)) == str(inspect.signature(pythons))
    left, right = _made(ours), _made(pythons)
    assert [repr(one) for one in left] == [repr(one) for one in right]
    assert [[a == b for a in left] for b in left] == [[a == b for a in right] for b in right]
    for a, b in zip(left, right, strict=True):
        if isinstance(a, str):
            continue
        assert a != b  # of another class
        assert dataclasses.asdict(a) == dataclasses.asdict(b)
        assert repr(copy.deepcopy(a)) == repr(b)
        assert (ours.__hash__ is None) == (pythons.__hash__ is None)
        if ours.__hash__ is not None:
            assert hash(a) == hash(b)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_frozen_objects_refuse_as_pythons(case: Callable[[Decorator], Any]) -> None:
    said = []
    for of in (dataclass, dataclasses.dataclass):
        made = next(one for one in _made(case(of)) if not isinstance(one, str))
        for act in (lambda one: setattr(one, "x", 2), lambda one: setattr(one, "more", 2), lambda one: delattr(one, "x")):
            try:
                act(made)
                said.append("done")
            except AttributeError as error:
                said.append(f"{type(error).__name__} {error}")
    assert said[:3] == said[3:]


def test_a_frozen_class_has_only_frozen_bases() -> None:
    for of in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError, match="non-frozen"):
            of(type("Thawed", (_one(dataclass),), {}))
        of(frozen=True)(type("Frozen", (_one(dataclass),), {}))


def test_other_options_are_pythons() -> None:
    slotted = dataclass(frozen=True, order=True, slots=True)(type("Slotted", (), {"__annotations__": {"x": int}}))
    assert slotted(1) < slotted(2)
    assert not hasattr(slotted(1), "__dict__")


@dataclass(frozen=True)
class Kept:
    """Pickled by name."""

    x: int
    again: Kept | None = None


def test_objects_are_pickled_and_replaced() -> None:
    one = Kept(1, Kept(2))
    assert pickle.loads(pickle.dumps(one)) == one
    assert replace(one, x=3) == Kept(3, Kept(2))


def test_an_object_within_itself_has_a_text() -> None:
    made = _open(dataclass)(1)
    made.x = made
    assert repr(made).endswith("Open(x=..., made={}, given=3)")


def test_a_class_that_nobody_calls_writes_no_code() -> None:
    written = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in ("_create_fn", "_write_init"):
            written.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        cls = _one(dataclass)
        assert written == []
        cls(1), cls(2)
    finally:
        sys.setprofile(None)
    assert written == ["_write_init"]


def test_every_class_of_the_source_is_declared_so() -> None:
    own = SOURCE / "base" / "dataclasses.py"
    pythons = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path != own
        and any(
            line.startswith("from dataclasses import") and "dataclass" in line.replace("is_dataclass", "").split("import")[1]
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert pythons == [], "windtunnel.base.dataclasses has the same decorator, cheaper at import"
