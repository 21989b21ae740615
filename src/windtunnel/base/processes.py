"""Independent pieces of work on all cores of this machine, with their results in order."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedMap(Protocol):
    """Like `map` of one sequence, of a function at the top of its module."""

    def __call__(self, function: Callable[[Item], Result], items: Iterable[Item], at_once: int = 1) -> Iterator[Result]:
        """Results in the order of the items; a process takes `at_once` items at a time."""


def count_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def ordered_map(count: int, begin: Callable[..., None], *arguments: object) -> Iterator[OrderedMap]:
    """Yields a map over `count` processes, or in this one for 1. Each process first calls `begin(*arguments)`. An error of a piece
    of work is raised where its result is taken; pieces that have not begun are dropped then."""
    if count <= 1:
        begin(*arguments)

        def run_here(function: Callable[[Item], Result], items: Iterable[Item], at_once: int = 1) -> Iterator[Result]:
            return map(function, items)

        yield run_here
        return
    method = "fork" if sys.platform == "linux" else "spawn"  # a fork has everything imported
    pool = ProcessPoolExecutor(count, multiprocessing.get_context(method), initializer=begin, initargs=arguments)

    def run(function: Callable[[Item], Result], items: Iterable[Item], at_once: int = 1) -> Iterator[Result]:
        return pool.map(function, items, chunksize=at_once)

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
