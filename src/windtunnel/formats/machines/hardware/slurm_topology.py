"""Slurm's topology: `topology.conf` (`SwitchName=leaf1 Nodes=n[1-8]`, `BlockName=b1 Nodes=n[1-8]`) and `topology.yaml`.

Keys: Slurm's topology.conf(5) and topology.yaml(5).

Lists of hosts as Slurm writes them: `srv[01-08,11],login1` is nine and one names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.switch_tree import SwitchTree, reading_of
from windtunnel.formats.reading import Context, Reading

LARGEST = 64 * MIB
_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
_FIRST = re.compile(r"^\s*(?:SwitchName|BlockName)\s*=\s*\S", re.IGNORECASE)
_YAML = re.compile(r"^[ \t]*+(?:-[ \t]*+)?topology:.*$", re.MULTILINE)
_KINDS = re.compile(r"^[ \t]++(?:tree|block):", re.MULTILINE)
_KEYS = frozenset({"switchname", "switches", "nodes", "blockname", "blocksizes"})


def recognises(head: Head) -> bool:
    """A line that names a switch or a block, or YAML with a topology of one kind."""
    if any(_FIRST.match(line) for line in head.lines[:2000]):
        return True
    return _YAML.search(head.text) is not None and _KINDS.search(head.text) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """A cluster from all files together. FileError for what is neither form, or has no node."""
    tree = SwitchTree()
    ignored: dict[str, None] = {}
    broken: list[str] = []
    for path in files:
        text = read_text(path, LARGEST, "a topology of Slurm")
        if any(_FIRST.match(line) for line in text.splitlines()):
            _lines(text, tree, ignored, broken, str(path))
        else:
            _tables(text, tree, str(path))
    told = tuple(f"{key}: changes nothing here" for key in ignored)
    return reading_of(tree, context, "slurm-topology", files[0].name, told, broken)


def _lines(text: str, tree: SwitchTree, ignored: dict[str, None], broken: list[str], source: str) -> None:
    """Lines of `key=value`; a line that ends with a backslash goes on."""
    bad = 0
    for line in text.replace("\\\n", " ").splitlines():
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.split("#")[0])}
        ignored |= dict.fromkeys(sorted(pairs.keys() - _KEYS))
        try:
            if "switchname" in pairs:
                below = hosts_of(pairs.get("switches", ""))
                tree.switches.setdefault(pairs["switchname"], []).extend(below)
                # `scontrol show topology` lists the nodes of the leaves again at each switch above them
                tree.nodes.setdefault(pairs["switchname"], []).extend([] if below else hosts_of(pairs.get("nodes", "")))
            elif "blockname" in pairs:
                tree.blocks.setdefault(pairs["blockname"], []).extend(hosts_of(pairs.get("nodes", "")))
        except ValueError:
            bad += 1
        if "blocksizes" in pairs:
            tree.block_sizes = tuple(int(size) for size in pairs["blocksizes"].split(",") if size.isdigit() and len(size) < 10)
    if bad:
        broken.append(f"{source}: {bad} lines whose list of names cannot be read")


def _tables(text: str, tree: SwitchTree, source: str) -> None:
    try:
        value = yaml.safe_load(text)
        listed = value if isinstance(value, list) else value.get("topologies", [value]) if isinstance(value, dict) else []
        for table in listed:
            for kind, name in (("tree", "switch"), ("block", "block")):
                part = table.get(kind) if isinstance(table, dict) else None
                if isinstance(part, dict):
                    _table(part, name, tree)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise FileError(source, " ".join(str(error).split())[:120], "Slurm's topology.yaml") from None


def _table(part: Mapping[str, Any], kind: str, tree: SwitchTree) -> None:
    sizes = part.get("block_sizes")
    if isinstance(sizes, list):
        tree.block_sizes = tuple(size for size in sizes if isinstance(size, int) and 0 < size < 10**9)
    for entry in part.get("switches" if kind == "switch" else "blocks") or ():
        name = str(entry[kind])
        nodes = hosts_of(str(entry.get("nodes") or ""))
        if kind == "block":
            tree.blocks.setdefault(name, []).extend(nodes)
            continue
        tree.switches.setdefault(name, []).extend(hosts_of(str(entry.get("children") or "")))
        tree.nodes.setdefault(name, []).extend(nodes)


MOST = 1_000_000
"""Names of a list at most; more are a mistake."""
_BRACKETS = re.compile(r"\[([0-9,\-\s]*)\]")


def hosts_of(text: str) -> list[str]:
    """Names in their order. ValueError for a list without end, for brackets that do not close, and for more than `MOST` names."""
    names: list[str] = []
    for part in _parts(text):
        for name in _expand_piece(part):
            names.append(name)
            if len(names) > MOST:
                raise ValueError(f"more than {MOST} names")
    return names


def _parts(text: str) -> Iterator[str]:
    """Pieces between the commas that stand outside of brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise ValueError("brackets that do not close")
        if sign == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if depth:
        raise ValueError("brackets that do not close")
    yield text[begin:]


def _expand_piece(part: str) -> Iterator[str]:
    """The names of one piece, whose first pair of brackets is written out, then the next."""
    part = part.strip()
    match = _BRACKETS.search(part)
    if match is None:
        if "[" in part:
            raise ValueError(f"{part[:40]!r}")
        yield from [part] if part else []
        return
    for span in match[1].split(","):
        first, _, last = (word.strip() for word in span.partition("-"))
        if not (first.isdigit() and (last.isdigit() or not last)) or len(first) > 12 or len(last) > 12:
            raise ValueError(f"{span[:40]!r} in brackets")
        for number in range(int(first), int(last or first) + 1):
            yield from _expand_piece(f"{part[: match.start()]}{number:0{len(first)}d}{part[match.end() :]}")
