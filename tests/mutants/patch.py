"""A mutant put into this process: the code of its function is replaced wherever the function is already held."""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Iterator
from types import CodeType, FunctionType

from .operators import Mutant, mutated
from .rooms import SRC


def put_in(mutant: Mutant) -> int:
    """Replaces the code of the mutant's function in all function objects of this process; how many there were.

    Imports, decorators and registries keep their objects, so no module has to be loaded again. Objects that the garbage collector
    was told to leave alone are found too. What functions remember of earlier calls is forgotten.
    """
    path = SRC / mutant.file
    importlib.import_module(f"windtunnel.{mutant.file.removesuffix('.py').replace('/', '.')}")  # some are loaded by tests alone
    code = compile(mutated(path.read_text(encoding="utf-8"), mutant), str(path), "exec", dont_inherit=True)
    new = {(each.co_qualname, each.co_firstlineno): each for each in codes_within(code)}
    gc.unfreeze()
    replaced = 0
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename == str(path):
            key = (thing.__code__.co_qualname, thing.__code__.co_firstlineno)
            if key in new and outermost(thing.__code__) == mutant.function and thing.__code__ != new[key]:
                thing.__code__ = new[key]
                replaced += 1
    for remembering in remembering_functions():
        remembering.cache_clear()
    return replaced


def remembering_functions() -> list[functools._lru_cache_wrapper[object]]:
    """Every `lru_cache` and `cache` of the package."""
    kind = functools._lru_cache_wrapper
    return [one for one in gc.get_objects() if type(one) is kind and str(one.__module__).startswith("windtunnel")]


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """A code object and all those inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_within(inner)


def outermost(code: CodeType) -> str:
    """Name of the function that a code object belongs to, with its class: `f` for what is written inside `f`."""
    return code.co_qualname.split(".<locals>")[0]
