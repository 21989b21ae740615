"""Functions are named by what they do to what, or by the thing that they return: not by a participle or adjective alone."""

from __future__ import annotations

from pathlib import Path

from circles import read_source, source_of

SRC = Path(__file__).resolve().parents[2] / "src" / "windtunnel"
ORACLES = SRC.parents[1] / "oracles" / "windtunnel_oracles"
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
_NOTES = "an attribute that every reading has: what was built, ignored, assumed, and what could not be read"
_RESULT = "a figure of a public result, beside its fields; documents and users' scripts name it"
ALLOWED = {
    "fleet/watch/api.py active": "documents show `watch.active`",
    "fleet/checkpoint/checkpointer.py Checkpointer.failed": "documents show `Checkpointer.failed`",
    "fleet/loading/loader.py SharedLoader.ready": "documents show `SharedLoader.ready`",
    "formats/jobs/keys.py Keys.built": _NOTES,
    "formats/machines/hardware/meters.py Meters.broken": _NOTES,
    "formats/machines/hardware/meters.py Meters.ignored": _NOTES,
    "formats/machines/hardware/meters.py Meters.assumed": _NOTES,
    "formats/traces/pytorch_et/ranks.py NodeColumns.broken": _NOTES,
    "memory/over_time.py OverTime.allocated": _RESULT,
    "memory/over_time.py OverTime.shown": _RESULT,
    "memory/result.py StageMemory.missing": _RESULT,
    "memory/result.py StageMemory.short": _RESULT,
    "memory/tiers.py TierMemory.missing": _RESULT,
    "records/incidents.py Incident.ended": "beside the fields `began` and `seen`",
    "replay/result.py ReplayResult.busy": _RESULT,
    "replay/result.py ReplayResult.exposed": _RESULT,
    "runs/breakdown.py StepTime.idle": "the sum of the fields that split idle time",
    "spec/model.py Model.gated": "a property of a noun, beside its fields",
    "fit.py published": "public: the verb `fit published`",
    "api/memory.py MemoryReport.missing": "public, as `StageMemory.missing`, and a key of what is printed",
    "traces/clocks.py Clocks.joined": "beside the fields of the clocks, and a key of what is printed",
}
"""Names that stay, with the reason."""


def is_bare(name: str) -> bool:
    """Whether a name is one participle or adjective."""
    word = name.strip("_")
    if "_" in word or name.startswith("__") or word in NOUNS | VERBS:
        return False
    return word in WORDS or (word.endswith("ed") and len(word) > 4)


def test_functions_say_what_they_do_to_what() -> None:
    bare, count = {}, 0
    for path in sorted([*SRC.rglob("*.py"), *ORACLES.rglob("*.py")]):
        for one in source_of(path).functions:
            count += 1
            if is_bare(one.name.rpartition(".")[2]):
                bare[f"{path.relative_to(SRC if SRC in path.parents else ORACLES).as_posix()} {one.name}"] = one.line
    assert count > 6000
    assert not (named := {name: line for name, line in bare.items() if name not in ALLOWED}), named
    assert ALLOWED.keys() <= bare.keys(), "a name that is allowed and is not there"


def test_a_bare_name_is_seen() -> None:
    assert is_bare("_told") and is_bare("alone") and is_bare("reduced") and is_bare("_each")
    assert not is_bare("read") and not is_bare("__enter__") and not is_bare("read_meta") and not is_bare("speed")
    text = (
        "class A:\n    def told(self):\n        if 1:\n            def kept(): ...\nmatch 1:\n    case 1:\n        def held(): ..."
    )
    assert [(one.name, one.line) for one in read_source(text).functions] == [("A.told", 2), ("kept", 4), ("held", 7)]
