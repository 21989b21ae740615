"""Python's dataclasses, whose methods cost nothing at import.

Python writes and compiles six methods for each class when it is declared, 0.5 ms; a command loads some 230 classes and creates
few. Here `__init__` is written when a class is first called, and the other methods are closures. Fields, signature, comparison,
hash and text are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["KW_ONLY", "MISSING", "Field", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]


def _declare(cls: Any = None, /, *, frozen: bool = False, **others: Any) -> Any:
    """The decorator `dataclass`. A class with options besides `frozen` gets all of its methods from Python at once."""
    if others:
        return dataclasses.dataclass(cls, frozen=frozen, **others)
    return _read(cls, frozen) if cls is not None else lambda made: _read(made, frozen)


def _read(cls: Any, frozen: bool) -> Any:
    """`cls` with its fields read and its methods in place, those that it brings itself aside."""
    own = set(cls.__dict__)
    hashed = "__hash__" in own and not (cls.__dict__["__hash__"] is None and "__eq__" in own)
    if "__init__" not in own:
        cls.__init__ = _Init(cls, frozen)
    derived = any(hasattr(base, "__dataclass_params__") for base in cls.__mro__[1:])  # then Python checks that both are frozen
    dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=frozen and derived)
    cls.__dataclass_params__.frozen = frozen
    found = fields(cls)
    if "__repr__" not in own:
        cls.__repr__ = _text_of([one.name for one in found if one.repr])
    if "__eq__" not in own:
        cls.__eq__ = _equality(_values_of([one.name for one in found if one.compare]))
    if not hashed and frozen:
        cls.__hash__ = _hash_of(_values_of([one.name for one in found if (one.compare if one.hash is None else one.hash)]))
    elif not hashed:
        cls.__hash__ = None
    if frozen and not derived:
        cls.__setattr__, cls.__delattr__ = _refusals(cls, {one.name for one in found})
    return cls


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an object to the tuple of its attributes `names`."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda of: (getattr(of, names[0]),)) if names else lambda of: ()


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash_of(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __hash__(self: object) -> int:
        return hash(values(self))

    return __hash__


def _text_of(names: list[str]) -> Any:
    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refusals(cls: Any, names: set[str]) -> tuple[Any, Any]:
    """`__setattr__` and `__delattr__` of a frozen class."""

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


class _Init:
    """The `__init__` of `cls`, written when it is first asked for."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        self.cls.__init__ = made = _write_init(self.cls, self.frozen)
        return made if instance is None else made.__get__(instance, owner)


def _write_init(cls: Any, frozen: bool) -> Any:
    """`__init__` with a parameter for each field, positional ones first; then `__post_init__`, where the class has one."""
    absent = getattr(dataclasses, "_HAS_DEFAULT_FACTORY", object())  # signatures show it as "<factory>"
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": absent}
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for one in fields(cls):
        name, made = one.name, one.default_factory is not MISSING
        if not (one.init or made):
            continue  # its value is the class's
        scope[f"_of_{name}"] = one.default_factory if made else one.default
        if one.init:
            default = "=_absent" if made else "" if one.default is MISSING else f"=_of_{name}"
            (named if one.kw_only else positional).append(name + default)
        value = f"_of_{name}()" if made else name
        if made and one.init:
            value += f" if {name} is _absent else {name}"
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    heads = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    exec(f"def __init__({heads}):\n  " + "\n  ".join(body or ["pass"]), scope)  # noqa: S102
    init = scope["__init__"]
    init.__annotations__ = {one.name: one.type for one in fields(cls) if one.init} | {"return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _declare
