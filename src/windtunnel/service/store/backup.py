"""A consistent copy of a service in one tar file, and a service from such a copy; between SQLite and PostgreSQL too.

The rows are read in one transaction. Blobs are files that never change, and are deleted only some time after no row names them, so
those that the rows name can be copied while the service runs.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, text

from windtunnel.base.errors import FileError
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import Database, meta, open_database, revisions
from windtunnel.service.store.shelf import Shelf

ROWS = "rows.json"
_BLOB = re.compile(r"blobs/([0-9a-f]{64})")


def back_up(settings: ServiceSettings, file: Path) -> str:
    """Writes a copy of the service to `file`, which appears whole or not at all; returns what it holds, in words. The service may
    run meanwhile."""
    database = open_database(Path(settings.folder), settings.database)
    blobs = Blobs(settings.blobs)
    part = file.with_name(f".{file.name}.part")
    try:
        rows, named = _read_rows(database, blobs)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            with tarfile.open(fileobj=raw, mode="w") as tar:
                _add(tar, ROWS, json.dumps({"revision": revisions()[-1], "tables": rows}).encode())
                kept = [
                    digest
                    for digest in sorted(named)
                    if (data := blobs.get(digest)) is not None and _add(tar, f"blobs/{digest}", data)
                ]
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError("--backup", str(file), "a file that can be written", f"{error.strerror}.") from error
    finally:
        database.close()
    return f"{len(rows['answers']):,} answers, {len(rows['jobs']):,} jobs and {len(kept):,} files in {file}"


def restore_copy(settings: ServiceSettings, file: Path) -> str:
    """Fills an empty service from a copy; returns what it has now, in words. Jobs that ran when it was made wait again. FileError
    if the service is not empty, or the file is no such copy."""
    database = open_database(Path(settings.folder), settings.database)
    blobs = Blobs(settings.blobs)
    try:
        with tarfile.open(file, "r:") as tar:
            head = tar.extractfile(ROWS)
            found = json.loads(head.read()) if head is not None else {}
            if found.get("revision") not in revisions():
                raise FileError("--restore", str(file), "a copy of this version or an earlier one")
            for member in tar:
                blob = _BLOB.fullmatch(member.name)
                data = tar.extractfile(member) if blob is not None and member.isfile() else None
                if blob is not None and data is not None and blobs.put(content := data.read()) != blob[1]:
                    raise FileError("--restore", str(file), "a copy that is whole", f"{len(content)} bytes have another hash.")
        _write_rows(database, found["tables"], file)
    except (OSError, tarfile.TarError, ValueError, KeyError) as error:
        raise FileError("--restore", str(file), "a file that `windtunnel serve --backup` wrote", str(error)) from error
    finally:
        database.close()
    return f"{len(found['tables']['answers']):,} answers and {len(found['tables']['jobs']):,} jobs from {file}"


def _read_rows(database: Database, blobs: Blobs) -> tuple[dict[str, list[dict[str, Any]]], set[str]]:
    with database.reading() as connection:
        if not database.sqlite:
            connection.execute(text("set transaction isolation level repeatable read"))
        rows = {table.name: [dict(row._mapping) for row in connection.execute(select(table)).all()] for table in meta.sorted_tables}
    return rows, Shelf(database, blobs).named_blobs()


def _write_rows(database: Database, tables: dict[str, list[dict[str, Any]]], file: Path) -> None:
    with database.transaction() as connection:
        for table in meta.sorted_tables:
            if table.name != "counters" and connection.execute(select(func.count()).select_from(table)).scalar_one():
                raise FileError("--restore", str(file), "an empty --dir or --database", f"This one has {table.name}.")
        connection.execute(meta.tables["counters"].delete())
        for table in meta.sorted_tables:
            columns = set(table.columns.keys())
            rows = [{key: value for key, value in row.items() if key in columns} for row in tables.get(table.name, [])]
            for row in rows if table.name == "jobs" else ():
                if row["state"] == "running":
                    row.update(state="queued", owner=None, lease_until=None)
            if table.name == "audit":
                rows = [{key: value for key, value in row.items() if key != "number"} for row in rows]
            if rows:
                connection.execute(insert(table), rows)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> bool:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))
    return True
