"""What a command line or a table says, as names with their texts; the words of flags without a script around them. Whose
configuration of reinforcement learning a table is, by its sections: what the readers of scripts and of tables both ask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from windtunnel.base.errors import FileError


class Said:
    """Names with their texts: overrides, flags, or the leaves of a table. The first of several names that is there counts."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.texts

    def text(self, *names: str) -> str | None:
        """The text of the first of `names` that is there."""
        self.asked.update(names)
        return next((self.texts[name] for name in names if name in self.texts), None)

    def count(self, *names: str) -> int | None:
        """A positive whole number; None for anything else."""
        text = self.text(*names) or ""
        return int(text) if text.isdecimal() and int(text) > 0 else None

    def number(self, *names: str) -> float | None:
        """A number; None for anything else."""
        try:
            return float(self.text(*names) or "")
        except ValueError:
            return None

    def is_on(self, *names: str) -> bool:
        """Whether a switch is set."""
        return (self.text(*names) or "").lower() == "true"

    def left_over(self, costless: Collection[str] = ()) -> list[str]:
        """Names that nothing asked for, without those that are or lie in a section of `costless`, at any depth."""
        return sorted(name for name in self.texts.keys() - self.asked if not any(f".{part}." in f".{name}." for part in costless))


def said_of_flags(words: Sequence[str]) -> Said:
    """Flags with their texts: `--name value`, `--name=value`; several values of one joined by blanks, `true` for a flag alone."""
    texts: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            texts[name] = value if equals else "true"
            name = "" if equals else name
        elif name:
            texts[name] = word if texts[name] == "true" else f"{texts[name]} {word}"
    return Said(texts)


def said_of_table(table: Mapping[str, Any]) -> Said:
    """Leaves of a table by their dotted names."""
    texts: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else str(key))
        elif value is not None and not isinstance(value, list):
            texts[name] = str(value)

    walk(table, "")
    return Said(texts)


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that are stated."""
    return {name: value for name, value in fields.items() if value is not None}


LARGEST_WORD_COUNT = 20_000
_CONTINUED = re.compile(r"\\[ \t]*+\r?\n")
_PIECE = re.compile(
    r"(?P<blank>[ \t\r\n]++)|(?P<comment>\#[^\n]*+)|(?P<plain>[^ \t\r\n\\'\"#]++)|\\(?P<escaped>.)"
    r"|'(?P<single>[^']*+)'|\"(?P<double>(?:[^\"\\]|\\.)*+)\"",
    re.DOTALL,
)
_ESCAPED_IN_QUOTES = re.compile(r"\\([\\\"])")


def plain_words(text: str, where: str) -> list[str]:
    """Words by the rules of a POSIX shell, where brackets and bars are characters like others: flags as a log or a file lists them.

    One pass: the time grows with the length of the text alone. Raises `FileError` as `command.words` does.
    """
    text = _CONTINUED.sub(" ", text)
    split: list[str] = []
    pieces: list[str] = []
    at = 0

    def end_word() -> None:
        if pieces:
            split.append("".join(pieces))
            pieces.clear()
        if len(split) > LARGEST_WORD_COUNT:
            raise FileError(where, f"more than {LARGEST_WORD_COUNT} words", "the arguments of one job")

    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            what = "a backslash at the end" if text[at] == "\\" else "No closing quotation"
            raise FileError(where, what, "a command line whose quotes are closed")
        at, kind = piece.end(), piece.lastgroup or "plain"
        if kind in ("blank", "comment"):
            end_word()
        else:
            inner = piece.group(kind)
            if len(pieces) > LARGEST_WORD_COUNT:
                raise FileError(where, f"a word of more than {LARGEST_WORD_COUNT} quoted pieces", "the arguments of one job")
            pieces.append(_ESCAPED_IN_QUOTES.sub(r"\1", inner) if kind == "double" else inner)
    end_word()
    return split


ENTRY = "entrypoint"
"""Where a table that was made of a command names the module that it starts."""


def is_areal(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of AReaL: roles with a backend, or all placed by an allocation mode."""
    actor = table.get("actor")
    sections = {"rollout", "gconfig", "ppo", "dataset", "train_dataset"}
    placed = isinstance(table.get("allocation_mode"), str) and bool(sections & set(table))
    return isinstance(actor, Mapping) and (placed or isinstance(actor.get("backend"), str) and "train_dataset" in table)


def is_roll(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of ROLL: an actor that is trained and one that generates, by strategies."""
    return all(isinstance(table.get(role), Mapping) and "strategy_args" in table[role] for role in ("actor_train", "actor_infer"))


def is_nemo_rl(table: Mapping[str, Any]) -> bool:
    """Whether a table has NeMo RL's sections: a policy that is trained by an algorithm or on a cluster of its own."""
    policy = table.get("policy")
    beside = any(isinstance(table.get(name), Mapping) for name in ("grpo", "ppo", "loss_fn", "cluster"))
    return isinstance(policy, Mapping) and beside and "model_name" not in table


def is_skyrl(table: Mapping[str, Any]) -> bool:
    """Whether a table has SkyRL's sections: a trainer that places a policy, beside a generator of several samples."""
    trainer, generator = table.get("trainer"), table.get("generator")
    return (
        isinstance(trainer, Mapping)
        and isinstance(generator, Mapping)
        and bool({"policy", "placement", "algorithm"} & set(trainer))
    )


def of_rl_trainer(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of one of them."""
    return is_areal(table) or is_roll(table) or is_nemo_rl(table) or is_skyrl(table)
