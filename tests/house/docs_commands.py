"""Commands as the documents write them: those in fenced blocks, and those between backticks in the text."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(```|~~~)[ \t]*([\w-]*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(windtunnel [^`\n]+)`")
SHELL = ("", "sh", "bash", "shell", "console", "text")
PLACEHOLDER = re.compile(r"(?:^|[\s=])(?:JOB|CSV|FILE|NAME|A|B|VERB|KEY=VALUE|<[^>]*>)(?=\s|$)|\.\.\.|…|\[|\$|\bX\b")


def documents() -> list[Path]:
    """The pages at the root, under docs/ and beside the examples."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def blocks(path: Path, languages: tuple[str, ...]) -> list[str]:
    """Fenced blocks of a document in the given languages."""
    return [body for _, language, body in FENCE.findall(path.read_text(encoding="utf-8")) if language in languages]


def fenced(path: Path) -> list[str]:
    """Lines of shell blocks, continuations joined, prompts and comments taken off."""
    lines: list[str] = []
    for body in blocks(path, SHELL):
        for line in body.replace("\\\n", " ").splitlines():
            text = re.sub(r"^\s*\$ ", "", line).strip()
            text = re.sub(r"\s+#\s.*$", "", text)
            lines.append(re.sub(r"^(?:\.venv/bin/|uv run )", "", text))
    return lines


def inline(path: Path) -> list[str]:
    """Commands between backticks in running text."""
    return INLINE.findall(FENCE.sub("", path.read_text(encoding="utf-8")))


def words(command: str) -> list[str]:
    """Arguments of a `windtunnel` command, up to a pipe or redirection."""
    found = shlex.split(command, comments=True)
    end = next((i for i, word in enumerate(found) if word in ("|", ">", ">>", "&&", ";", "2>")), len(found))
    return found[1:end]
