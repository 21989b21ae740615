"""Attacks of another local user: a forked child that has given up this user's rights."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534


def need_root() -> None:
    """Skips the test where no other user can be taken on."""
    if os.getuid() != 0:
        pytest.skip("only root can take on another user's id")


@contextmanager
def running_as_nobody(attack: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Runs `attack(ready)` as uid 65534 until the block ends; the block begins when the attack has called `ready`."""
    need_root()
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(readable)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            attack(lambda: os.write(writable, b"+") and None)
            status = 0
        except BaseException as error:  # the child of a test may not return into pytest
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writable)
    try:
        assert os.read(readable, 1) == b"+", "the attack did not begin"
        yield
    finally:
        os.close(readable)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
