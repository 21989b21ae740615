"""NVIDIA topograph's cluster models: YAML with `switches` (each with those below it) and `blocks` of nodes under a switch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.slurm_topology import hosts_of
from windtunnel.formats.machines.hardware.switch_tree import SwitchTree, reading_of
from windtunnel.formats.reading import Context, Reading

LARGEST = 64 * MIB
_SWITCHES = re.compile(r"^switches:\s*$", re.MULTILINE)
_BLOCKS = re.compile(r"^blocks:\s*$", re.MULTILINE)


def recognises(head: Head) -> bool:
    """Switches and blocks at the top of a YAML file."""
    return _SWITCHES.search(head.text) is not None and _BLOCKS.search(head.text) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """A cluster. FileError for YAML that is broken or has no node."""
    path, *more = files
    tree = SwitchTree()
    text = read_text(path, LARGEST, "a model of topograph")
    try:
        table = yaml.safe_load(text)
        _switches(table.get("switches"), tree)
        _blocks(table.get("blocks"), tree)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:120], "switches and blocks, as topograph's models have") from None
    ignored = (*(f"{other}: another model" for other in more), "labels and annotations other than the accelerator's domain")
    return reading_of(tree, context, "topograph", path.name, ignored, [])


def _switches(table: Any, tree: SwitchTree) -> None:
    for name, entry in (table or {}).items():
        tree.switches.setdefault(str(name), []).extend(_names((entry or {}).get("switches")))
        tree.nodes.setdefault(str(name), []).extend(_names((entry or {}).get("nodes")))


def _blocks(listed: Any, tree: SwitchTree) -> None:
    for number, entry in enumerate(listed or ()):
        nodes = _names(entry.get("nodes"))
        switch = entry.get("switch")
        if switch is not None:
            tree.nodes.setdefault(str(switch), []).extend(nodes)
        tree.blocks[str(entry.get("name") or number)] = nodes
        for key, domain in (entry.get("annotations") or {}).items():
            if str(key).rpartition("/")[2] == "domain":
                tree.domains[str(domain)] += len(nodes)


def _names(listed: Any) -> list[str]:
    given: Iterable[Any] = [listed] if isinstance(listed, str) else listed or ()
    return [name for one in given for name in hosts_of(str(one))]
