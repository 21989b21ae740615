"""A PostgreSQL server of a test: its own data, on a socket in a folder of its own, ended with the block."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

MISSING = shutil.which("initdb") is None or shutil.which("pg_ctl") is None


class PostgresServer:
    """`url`: for SQLAlchemy with psycopg."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wtpg"))  # not in tmp_path: its parents are for the owner alone
        self._data = self.folder / "pg"
        self._data.mkdir()
        self.url = f"postgresql+psycopg://wt@/postgres?host={self.folder}"
        self._user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        for path in (self.folder, self._data) if self._user else ():
            shutil.chown(path, "nobody", "nogroup")

    def __enter__(self) -> PostgresServer:
        subprocess.run(
            [*self._user, "initdb", "-D", str(self._data), "-U", "wt", "-A", "trust"], check=True, capture_output=True, cwd="/"
        )
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._control("-m", "immediate", "-w", "stop", check=False)
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Starts it, again after `kill`."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder}"
        self._control("-w", "-o", options, "-l", str(self._data / "log"), "start")

    def kill(self) -> None:
        """Ends all its processes at once: connections break, what was committed stays."""
        self._control("-m", "immediate", "-w", "stop")

    def _control(self, *words: str, check: bool = True) -> None:
        subprocess.run([*self._user, "pg_ctl", "-D", str(self._data), *words], check=check, cwd="/", stdout=subprocess.DEVNULL)
