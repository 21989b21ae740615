"""Runs commands of every verb with two trees, and compares all that they print and write, byte for byte.

    python -m tests.against.faces run --out A [--src DIR]       keeps the outputs of a tree (default: this one's src) in A
    python -m tests.against.faces compare A B                   says what differs; exit code 1 where anything does
    python -m tests.against.faces against REV                   both, with a commit and this tree

The commands are in faces.toml. A tree is copied beside A and runs in this environment, with this environment's C++ core: its cpp/
has to be equal; `against` builds an environment where it is not. Inputs are written once (faces_inputs.py), and both sides read the
same. `showing.py` says what is taken out of outputs.
"""

from __future__ import annotations

import argparse
import difflib
import filecmp
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .environment import ROOT, WORK, commit_of, python_of

INPUTS = WORK / "faces-inputs"
FACES = Path(__file__).with_name("faces.toml")
BUILT = ("windtunnel.engine._core", "windtunnel.fleet._ring")
LINES, WIDE = 40, 240
"""Of a difference that is shown."""
SIDE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
"""
"""sitecustomize.py of a side: the environment's editable install does not take its place."""


def commands() -> list[tuple[str, str]]:
    """(name of a folder, line) of every command: those of faces.toml, else the examples of a verb's entry, and the help of each."""
    table = _table()
    lines = [(verb, f"{verb} {line}") for verb, text in table["commands"].items() for line in _lines(text, table["short"])]
    lines += [
        (verb, line) for verb, text in _examples().items() if verb not in {*table["commands"], *exceptions()} for line in text
    ]
    lines += [("help", f"{verb} --help") for verb in (*groups(), *verbs())]
    lines += [(name, line) for name, text in table["lists"].items() for line in _lines(text, table["short"])]
    lines += [("python", f"python: {code.strip()}") for code in table["python"].values()]
    return list(dict.fromkeys((f"{verb.replace(' ', '-')}/{_short(line)}", line.strip()) for verb, line in lines))


def exceptions() -> dict[str, str]:
    """Verbs of which only the help is compared, with the reason."""
    reasons: dict[str, str] = _table()["exceptions"]
    return reasons


def covered() -> set[str]:
    """Verbs with a command of their own, or examples."""
    listed = {verb for verb, text in _table()["commands"].items() if text.strip()}
    return listed | {verb for verb, text in _examples().items() if text} - {*exceptions()}


def _examples() -> dict[str, list[str]]:
    """Verb -> the commands that its help shows, each of one line; what is said of one stands behind three blanks."""
    from windtunnel.base.verbs import all_verbs

    verbs = {" ".join(verb.words): verb.examples for verb in all_verbs().values()}
    return {name: re.findall(r"^  windtunnel (.*?)(?:   .*|(?<!\\))$", text, re.MULTILINE) for name, text in verbs.items()}


def verbs() -> list[str]:
    """Every verb and sub-verb, from the command line's own registry."""
    return [words for words, command in _walk(_application(), ()) if not hasattr(command, "list_commands")]


def groups() -> list[str]:
    """Verbs that have sub-verbs."""
    return [words for words, command in _walk(_application(), ()) if hasattr(command, "list_commands") and words]


def _short(line: str) -> str:
    return hashlib.sha256(line.strip().encode()).hexdigest()[:10]


def _table() -> dict[str, Any]:
    return tomllib.loads(FACES.read_text(encoding="utf-8"))


def _lines(text: str, short: dict[str, str]) -> list[str]:
    """The lines of a list, with their short words written out; an empty one is the verb alone."""
    for name, words in short.items():
        text = re.sub(rf"\${name}\b", words, text)
    return [line.strip() for line in text.split("\n")[:-1]]


def _application() -> Any:
    import typer

    from windtunnel.cli import app

    return typer.main.get_command(app)


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield " ".join(word for word in words if word != "FILE..."), command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _walk(command.get_command(None, name), (*words, name))


def run(out: Path, inputs: Path, jobs: int, source: Path | None = None, python: Path | None = None, only: str = "") -> None:
    """Runs all commands, or those whose line has `only`, with a tree's `source` in this environment, or with what another `python`
    has installed."""
    if not (inputs / "written").exists():
        from .faces_inputs import write_inputs

        write_inputs(inputs)
    chosen = [pair for pair in commands() if only in pair[1]]
    if not only:
        shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    listed = out.with_name(out.name + ".commands.json")
    listed.write_text(json.dumps(chosen), encoding="utf-8")
    side = out.with_name(out.name + ".side")
    environment = _environment(side)
    if python is None:
        _copy(source or ROOT / "src", side)
        environment["PYTHONPATH"] = str(side)
    script = Path(__file__).with_name("showing.py")
    subprocess.run(
        [str(python or sys.executable), str(script), str(listed), str(out), str(inputs), "--jobs", str(jobs)],
        env=environment, cwd=inputs, check=True,
    )  # fmt: skip
    shutil.rmtree(side, ignore_errors=True)
    listed.unlink()


def _environment(side: Path) -> dict[str, str]:
    """A plain terminal of 100 columns."""
    shutil.rmtree(side, ignore_errors=True)
    (side / "home").mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    return {
        **kept, "HOME": str(side / "home"), "PYTHONUTF8": "1", "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "TZ": "UTC",
        "PYDANTIC_DISABLE_PLUGINS": "__all__", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def _copy(source: Path, side: Path) -> None:
    """A tree's windtunnel in `side`, with the C++ core of this environment."""
    for name in ("cpp", "CMakeLists.txt"):
        if (source.parent / name).exists() and not _same(source.parent / name, ROOT / name):
            raise SystemExit(f"{source.parent / name} is not that of {ROOT}: run faces with the environment of that tree")
    for package in (source / "windtunnel", source.parent / "oracles" / "windtunnel_oracles"):
        if package.exists():
            shutil.copytree(package, side / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for module in BUILT:
        built = find_spec(module)
        assert built is not None and built.origin is not None
        shutil.copy(built.origin, side.joinpath(*module.split(".")[:-1]))
    (side / "sitecustomize.py").write_text(SIDE, encoding="utf-8")


def _same(a: Path, b: Path) -> bool:
    if a.is_file():
        return filecmp.cmp(a, b, shallow=False)
    files = {path.relative_to(a) for path in a.rglob("*") if path.is_file()}
    return files == {path.relative_to(b) for path in b.rglob("*") if path.is_file()} and all(
        filecmp.cmp(a / path, b / path, shallow=False) for path in files
    )


def compare(old: Path, new: Path, some: bool = False) -> int:
    """Prints what differs between two folders of outputs; returns the number of commands that differ. A command that the new side
    has not run differs too, unless it ran `some` only."""
    was, now = _outputs(old), _outputs(new)
    differ: Counter[str] = Counter()
    for name in sorted(was.keys() & now.keys()):
        for file in sorted(was[name].keys() | now[name].keys()):
            before, after = was[name].get(file), now[name].get(file)
            if before is None or after is None or before.read_bytes() != after.read_bytes():
                if not differ[name]:
                    print(f"\n=== {name}: {(old / name / 'command').read_text(encoding='utf-8').strip()}")
                differ[name] += 1
                print("\n".join(_difference(file, before, after)))
    for side, names in (("old", was.keys() - now.keys()), ("new", now.keys() - was.keys())):
        if names:
            print(f"\nrun on the {side} side only: {len(names)} commands, such as {', '.join(sorted(names)[:5])}")
    print(f"\n{len(was.keys() & now.keys())} commands of both sides, {sum(map(len, was.values()))} outputs: {len(differ)} differ")
    return len(differ) + (0 if some else len(was.keys() - now.keys()))


def _outputs(folder: Path) -> dict[str, dict[str, Path]]:
    """Command -> path of an output -> the file."""
    outputs: dict[str, dict[str, Path]] = {}
    for command in sorted(folder.glob("*/*/command")):
        files = [path for path in command.parent.rglob("*") if path.is_file()]
        outputs[str(command.parent.relative_to(folder))] = {str(path.relative_to(command.parent)): path for path in files}
    if not outputs:
        raise SystemExit(f"{folder} holds no outputs: python -m tests.against.faces run --out {folder}")
    return outputs


def _difference(file: str, before: Path | None, after: Path | None) -> list[str]:
    """The first lines of what differs."""
    if before is None or after is None:
        return [f"--- {file}: only the {'new' if before is None else 'old'} side wrote it"]
    try:
        a, b = (_broken(path.read_text(encoding="utf-8")) for path in (before, after))
    except UnicodeDecodeError:
        return [f"--- {file}: bytes differ ({before.stat().st_size} and {after.stat().st_size})"]
    lines = [line.rstrip("\n")[:WIDE] for line in difflib.unified_diff(a, b, f"{file} (old)", f"{file} (new)", n=1, lineterm="")]
    return lines[:LINES] + ([f"… {len(lines) - LINES} more lines"] if len(lines) > LINES else [])


def _broken(text: str) -> list[str]:
    """Lines; those of pages and JSON without line breaks are broken at their marks."""
    if max(map(len, text.splitlines()), default=0) > WIDE:
        text = re.sub(r"(>|[,{}\[\]] ?|;)", "\\1\n", text)
    return text.splitlines(keepends=True)


def against(revision: str, jobs: int) -> int:
    """This tree against a commit."""
    commit = commit_of(revision)
    old, new = WORK / "faces-old", WORK / "faces-new"
    equal = not subprocess.run(["git", "diff", "--quiet", commit, "--", "cpp", "CMakeLists.txt"], cwd=ROOT).returncode
    if equal:
        tree = WORK / "faces-tree"
        shutil.rmtree(tree, ignore_errors=True)
        listed = subprocess.run(["git", "ls-tree", "--name-only", commit, "oracles"], cwd=ROOT, check=True, capture_output=True)
        oracles = ["oracles"] if listed.stdout else []
        packed = subprocess.run(["git", "archive", commit, "src", *oracles], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(tree, filter="data")
        run(old, INPUTS, jobs, tree / "src")
    else:
        run(old, INPUTS, jobs, python=python_of(commit))
    run(new, INPUTS, jobs)
    print(f"{commit[:12]} against this tree")
    return compare(old, new)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where nothing differs."""
    parser = argparse.ArgumentParser(description="What commands print and write, with two trees.")
    verb = parser.add_subparsers(dest="verb", required=True)
    runs = verb.add_parser("run")
    runs.add_argument("--src", type=Path, help="the src of a tree; default: this one's")
    runs.add_argument("--python", type=Path, help="a Python with windtunnel installed, instead of --src")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--inputs", type=Path, default=INPUTS, help="a folder of inputs; written where there is none")
    runs.add_argument("--only", default="", help="commands whose line has this")
    both = verb.add_parser("compare")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    both.add_argument("--some", action="store_true", help="the new side ran some of the commands only (run --only)")
    commit = verb.add_parser("against")
    commit.add_argument("revision")
    for command in (runs, commit):
        command.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.verb == "run":
        source = given.src.resolve() if given.src else None
        run(given.out.resolve(), given.inputs.resolve(), given.jobs, source, given.python, given.only)
        return 0
    differ = compare(given.old, given.new, given.some) if given.verb == "compare" else against(given.revision, given.jobs)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
