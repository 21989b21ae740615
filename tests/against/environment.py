"""An environment with a commit installed from a worktree of its own, under build/against/: made once a commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "against"
BUILD_TOOLS = ("scikit-build-core>=0.10", "nanobind>=2.4", "cmake>=3.20", "ninja>=1.11")


def commit_of(revision: str) -> str:
    """The full name of a commit."""
    told = subprocess.run(["git", "rev-parse", "--verify", revision + "^{commit}"], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        raise SystemExit(f"no commit {revision!r} here: {told.stderr.strip()}")
    return told.stdout.strip()


def last_tag() -> str | None:
    """The last tag before this tree."""
    told = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or None


def python_of(commit: str) -> Path:
    """The Python of an environment with windtunnel of a commit; it is built where there is none yet."""
    folder = WORK / commit[:12]
    tree, python, built = folder / "tree", folder / "venv" / "bin" / "python", folder / "built"
    if not built.exists():
        print(f"building {commit[:12]} in {folder.relative_to(ROOT)}: two minutes, once", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run("git", "worktree", "prune")
        _run("git", "worktree", "add", "--detach", str(tree), commit)
        _run(sys.executable, "-m", "venv", str(folder / "venv"))
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
        _run(*pip, *BUILD_TOOLS)
        _run(*pip, "--no-build-isolation", str(tree))
        _run("git", "worktree", "remove", "--force", str(tree))  # installed: the environment is all that is needed
        built.touch()
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
