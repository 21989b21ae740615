"""Builds all sdists and, from them, the wheels of one or more Pythons.

`python release/build.py FOLDER [PYTHON ...]` leaves sdists and wheels in FOLDER/dist. Without PYTHON: the one that runs this, and
the oldest of 3.12 and later that is installed, whose wheel serves all later versions. The C++ core does not depend on Python: it is
compiled once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from cut import cut

ABI3 = (3, 12)
"""The oldest Python whose wheel serves all later ones; see `wheel.py-api` in pyproject.toml."""
BUILD_TOOLS = ("scikit-build-core>=0.10", "nanobind>=2.4", "cmake>=3.20", "ninja>=1.11")


def installed(minor: int) -> Path | None:
    """A Python 3.`minor` that runs: on the path, or of pyenv."""
    found = shutil.which(f"python3.{minor}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in ([Path(found)] if found else []) + sorted(pyenv.glob(f"3.{minor}.*/bin/python")):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def pythons() -> list[Path]:
    """This Python, and the oldest with the stable ABI."""
    later = next((found for minor in range(ABI3[1], 20) if (found := installed(minor))), None)
    return [Path(sys.executable), *([later] if later and sys.version_info < ABI3 else [])]


def sdist(tree: Path, into: Path) -> Path:
    """The source distribution of a tree."""
    code = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(into)], cwd=tree, check=True, capture_output=True, text=True)
    return into / done.stdout.splitlines()[-1].strip()


def unpacked(archive: Path, into: Path) -> Path:
    """The folder that an sdist unpacks to: what a wheel is built from."""
    shutil.rmtree(into / archive.name.removesuffix(".tar.gz"), ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def tools_of(python: Path, into: Path) -> Path:
    """A Python that has what a build needs: this one, or an environment of its own for another."""
    if python == Path(sys.executable):
        return python
    made = into / f"tools-{python.parent.parent.name}"
    if not (made / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", made], check=True)
        subprocess.run(
            [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *BUILD_TOOLS], check=True
        )
    return made / "bin" / "python"


def wheel(source: Path, python: Path, into: Path, build: Path) -> None:
    """One wheel of an unpacked sdist; objects in `build` that do not depend on Python are used again."""
    command = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "-C", f"build-dir={build}", "-w", into, source], check=True)


def main(arguments: Sequence[str]) -> None:
    """The command line of this file."""
    folder = Path(arguments[0]).absolute()
    dist = folder / "dist"
    for old in (dist, folder / "cmake"):  # files of an sdist all have one time, so that no build would see what changed
        shutil.rmtree(old, ignore_errors=True)
    dist.mkdir(parents=True)
    archives = [sdist(tree, dist) for tree in cut(folder / "trees").values()]
    for archive in archives:
        source = unpacked(archive, folder / "sources")
        compiled = (source / "CMakeLists.txt").exists()
        for python in ([Path(one) for one in arguments[1:]] or pythons())[: None if compiled else 1]:
            wheel(source, tools_of(python, folder), dist, folder / "cmake" / source.name)
    for made in sorted(dist.iterdir()):
        print(f"{made.stat().st_size / 2**20:6.2f} MiB  {made}")


if __name__ == "__main__":
    main(sys.argv[1:])
