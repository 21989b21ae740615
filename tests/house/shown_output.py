"""Outputs that the project shows: `examples/output/*.txt`, and what stands under `$ windtunnel …` or `$ python examples/…`
in the documents.

    python tests/house/shown_output.py        writes all of them anew; `make examples` does so

An output in a document may leave lines out: `…` stands for any lines, also at the end of a line for its rest.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from docs_commands import FENCE, PLACEHOLDER, ROOT, SHELL, documents, words

from windtunnel.cli import main as windtunnel

EXAMPLES = ROOT / "examples"
COLUMNS = "100"
"""Width of the terminal that the documents show."""


@dataclass(frozen=True)
class Shown:
    """A command of a document, and the lines that stand under it."""

    command: str
    lines: tuple[str, ...]


def shown_in(path: Path) -> list[Shown]:
    """Commands after `$ ` in the fenced blocks of a document, with the output below them, if there is any."""
    found = []
    for _, language, body in FENCE.findall(path.read_text(encoding="utf-8")):
        if language not in SHELL:
            continue
        for part in re.split(r"^\$ ", body.replace("\\\n", "\0"), flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            lines = [line.rstrip() for line in lines if line.strip()]
            if (
                command.startswith(("windtunnel ", "python examples/"))
                and lines
                and not PLACEHOLDER.search(command.replace("…", ""))
            ):
                found.append(Shown(" ".join(command.replace("\0", " ").split()), tuple(lines)))
    return found


def environment() -> dict[str, str]:
    """That of a plain terminal of 100 columns, with this checkout's package."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    plain = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    return {**plain, "PYTHONPATH": path, "PYTHONUTF8": "1", "COLUMNS": COLUMNS, "TERM": "dumb"}


def missing(wanted: tuple[str, ...], printed: str) -> str | None:
    """The first wanted line that does not follow the others in what was printed, or None."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    for want in wanted:
        head, cut, _ = want.partition("…")
        if not head.strip():
            continue
        if not any(line == want or cut and line.startswith(head.rstrip()) for line in lines):
            return want
    return None


def _mask(line: str) -> str:
    """A line without its numbers, bars and widths: what stays when only figures move."""
    line = re.sub(r"±\s?[\d.]+\s?%", "", line)
    return " ".join(re.sub(r"[\d.,+%█▉▊▋▌▍▎▏-]+", "#", re.sub(r"\b(ns|us|µs|ms|s|k|M|G|million|billion)\b", "", line)).split())


def renewed(wanted: tuple[str, ...], printed: str) -> list[str]:
    """The wanted lines with today's figures; a line without a counterpart stays as it is."""
    lines, at, new = [line.rstrip() for line in printed.splitlines()], 0, []
    for want in wanted:
        head = want.partition("…")[0]
        exact = (
            i for i in range(at, len(lines)) if lines[i] == want or "…" in want and head and lines[i].startswith(head.rstrip())
        )
        place = next(exact, None) if head.strip() else None
        if place is None and head.strip():
            place = next((i for i in range(at, len(lines)) if _mask(lines[i]) == _mask(want)), None)
        new.append(want if place is None or "…" in want else lines[place])
        at = at if place is None else place + 1
    return new


def run_example(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """An example script, run in `folder`."""
    command = [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment(), check=False)


def run_shown(command: str, folder: Path) -> str:
    """What a `windtunnel` command or an example prints on its terminal, run in `folder`; the former in this process."""
    if not command.startswith("windtunnel "):
        return run_example(ROOT / words(command)[0], folder).stdout
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with chdir(folder), patch.dict(os.environ, environment(), clear=True), redirect_stdout(printed), redirect_stderr(printed):
        windtunnel(words(command))
    return printed.buffer.getvalue().decode()  # type: ignore[attr-defined]


def main() -> int:
    """Writes every shown output anew and names what changed."""
    (EXAMPLES / "output").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for entry in ("examples", "docs", "src", "README.md"):
            (Path(folder) / entry).symlink_to(ROOT / entry)
        (Path(folder) / "out").mkdir()
        for script in sorted(EXAMPLES.glob("*.py")):
            done = run_example(script, Path(folder))
            file = EXAMPLES / "output" / f"{script.stem}.txt"
            if done.returncode:
                print(f"{script.name}: {done.stderr}", file=sys.stderr)
                return 1
            if not file.exists() or file.read_text(encoding="utf-8") != done.stdout:
                print(f"{file.relative_to(ROOT)} is new")
                file.write_text(done.stdout, encoding="utf-8")
        for path in documents():
            text = path.read_text(encoding="utf-8")
            for shown in shown_in(path):
                new = renewed(shown.lines, printed := run_shown(shown.command, Path(folder)))
                for old, line in zip(shown.lines, new, strict=True):
                    text = text.replace(f"\n{old}\n", f"\n{line}\n", 1) if old != line else text
                if (left := missing(tuple(new), printed)) is not None:
                    print(f"{path.relative_to(ROOT)}: `{shown.command}` no longer prints {left!r}: edit it by hand")
            if text != path.read_text(encoding="utf-8"):
                print(f"{path.relative_to(ROOT)} is new")
                path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
