"""Functions of fleet/ are named by what they do, or by the thing that they return: not by a participle or adjective alone."""

from __future__ import annotations

import ast
from pathlib import Path

FLEET = Path(__file__).resolve().parents[2] / "src" / "windtunnel" / "fleet"
_WORDS = """
told kept found held known shown seen said written read sent made done gone given taken stood struck begun woken broken
drawn chosen hidden bound built cut left lost met stuck sought thought worn alone whole plain wide beside apart amid due
over rough solid silent early mute idle busy full fresh slow dead alive bare large small several harmless stale first second
four each every other others own same once again past late long short usual absent whose rising independent able fixed quiet
active doomed warm ready standing stable fast quick extra missing inside outside between above below together elsewhere
within without under across around near far here there then
"""
WORDS = frozenset(_WORDS.split())
"""Words that do not end in -ed, and say nothing of what a function does to what."""
NOUNS = frozenset({"need", "seed", "feed", "speed", "embed", "proceed", "exceed"})
VERBS = frozenset({"read", "cut", "warm"})
PUBLIC = frozenset({"active", "failed", "ready"})
"""Names that documents show: `watch.active`, `Checkpointer.failed`, `SharedLoader.ready`."""


def is_bare(name: str) -> bool:
    """Whether a name is one participle or adjective."""
    word = name.strip("_")
    if "_" in word or name.startswith("__") or word in NOUNS | VERBS | PUBLIC:
        return False
    return word in WORDS or (word.endswith("ed") and len(word) > 4)


def test_functions_say_what_they_do_to_what() -> None:
    bare, count = [], 0
    for path in sorted(FLEET.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count += 1
                if is_bare(node.name):
                    bare.append(f"{path.relative_to(FLEET)}:{node.lineno} {node.name}")
    assert count > 1000
    assert not bare, "\n".join(bare)


def test_a_bare_name_is_seen() -> None:
    assert is_bare("_told") and is_bare("alone") and is_bare("reduced") and is_bare("_each")
    assert not is_bare("read") and not is_bare("__enter__") and not is_bare("read_meta") and not is_bare("speed")
