"""A file changed: bytes and numbers anywhere, or values of a JSON text, a pickle or a Python recipe, which stays whole."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from corpus import Draws, Seed

NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"99999999999999999999",
    b"nan",
    b"2147483648",
    b"18446744073709551615",
    b"[]",
    b"{}",
    b'""',
    b"null",
)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2**31,
    2**64,
    10**30,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    True,
    None,
    "",
    "0",
    "nan",
    "\x00",
    [],
    {},
    [None],
    [[[]]],
    {"": {}},
)
PICKLE = b"\x80"
WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9.]*|[0-9]+|\"[^\"\n]*\"")
"""A name, a number or a text of a Python recipe."""


def mutated(seed: Seed, draws: Draws, draw: Random) -> bytes:
    """The bytes of a seed with 1 to 16 changes; packed again if they were. A tenth of packed files is changed as it is packed."""
    if seed.packed and draw.random() < 0.1:
        return _bytes(gzip.compress(seed.data, 1), draws, draw)
    changed = _words if seed.kind == "recipe" else _values
    out = changed(seed.data, draw) if draw.random() < 0.5 else None
    if out is None:
        out = _bytes(seed.data, draws, draw)
    return gzip.compress(out, 1) if seed.packed else out


def _words(data: bytes, draw: Random) -> bytes | None:
    """A recipe with some words in place of others of the same file, or numbers that are out of range."""
    words = list(WORD.finditer(data))
    if not words:
        return None
    for _ in range(draw.randint(1, 8)):
        words = list(WORD.finditer(data))
        old, new = draw.choice(words), draw.choice((draw.choice(words)[0], draw.choice(NUMBERS)))
        data = data[: old.start()] + new + data[old.end() :]
    return data


def _values(data: bytes, draw: Random) -> bytes | None:
    """JSON or a pickle with some values changed; None for anything else."""
    load: Callable[[bytes], Any]
    if data.lstrip()[:1] in (b"{", b"["):
        load, dump = json.loads, lambda tree: json.dumps(tree).encode()
    elif data[:1] == PICKLE:
        load, dump = pickle.loads, pickle.dumps
    else:
        return None
    try:
        tree = load(data)
    except Exception:  # a broken one is changed by bytes
        return None
    if not isinstance(tree, (dict, list)):
        return None
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        _one_value(tree, draw)
    return dump(tree)


def _one_value(tree: Any, draw: Random) -> None:
    """Goes down at random; changes, drops, doubles or moves what it comes to."""
    at = tree
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        if not keys:
            return
        key = draw.choice(keys)
        below = at[key]
        if isinstance(below, (dict, list)) and draw.random() < 0.9:
            at = below
            continue
        break
    kind = draw.randrange(5)
    if kind == 0:
        del at[key]
    elif kind == 1 and isinstance(at, list):
        at[key:key] = [deepcopy(below) for _ in range(draw.choice((1, 20)))]
    elif kind == 2 and isinstance(below, (int, float)):
        at[key] = below * draw.choice((-1, 2, 1000, 0.001))
    elif kind == 3:
        at[key] = deepcopy(at[draw.choice(keys)])
    else:
        at[key] = deepcopy(draw.choice(VALUES))


def _bytes(data: bytes, draws: Draws, draw: Random) -> bytes:
    """Cut, spliced, with other bytes and other numbers."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        if not out:
            break
        at = draw.randrange(len(out))
        kind = draw.randrange(7)
        if kind == 0:
            out[at] = draw.randrange(256)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + draw.choice((1, 4, 100))]
        elif kind == 3:
            out[at:at] = out[at : at + draw.choice((1, 16, 1000))] * draw.choice((1, 2, 20))
        elif kind == 4:
            other = draws.one(draw).data
            begin = draw.randrange(len(other))
            out[at:at] = other[begin : begin + draw.choice((8, 200))]
        elif kind == 5:
            at = next((i for i in range(at, min(at + 200, len(out))) if chr(out[i]).isdigit()), at)
            end = at
            while end < len(out) and chr(out[end]).isdigit():
                end += 1
            out[at:end] = draw.choice(NUMBERS)
        else:
            out[at] ^= 1 << draw.randrange(8)
    return bytes(out)
