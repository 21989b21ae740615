"""`windtunnel serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.base.errors import FileError, NotInstalled, SpecError
from windtunnel.base.units import parse_days, parse_size
from windtunnel.service.settings import ServiceSettings


def command(  # long: one option a line
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; another one than this machine's needs tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="TCP port; 0: a free one.")] = 8480,
    dir: Annotated[
        str, typer.Option("--dir", "-d", metavar="FOLDER", help="Where answers, uploads and SQLite are; made if missing.")
    ] = "out/service",
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", help="postgresql://…; default: $WINDTUNNEL_DATABASE, else SQLite in --dir."),
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            "--workers", metavar="N|ray://ADDRESS", help="Worker processes of this machine, or a Ray cluster; default: its cores."
        ),
    ] = "",
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="Names, roles and hashed tokens; default: $WINDTUNNEL_TOKENS."),
    ] = None,
    new_token: Annotated[
        str | None,
        typer.Option("--new-token", metavar="NAME:ROLE", help="Add a token to --token-file, print it, and end; read or write."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DAYS", help="Of --new-token: when it ends; default: never.")
    ] = None,
    list_tokens: Annotated[
        bool, typer.Option("--list-tokens", help="Print who has a token, when it was made and last used, and end.")
    ] = False,
    revoke_token: Annotated[
        str | None, typer.Option("--revoke-token", metavar="NAME|HASH", help="Let tokens open nothing any more, at once, and end.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="HOST", help="A further name by which the service is called; repeatable.")
    ] = None,
    certificate: Annotated[str | None, typer.Option("--certificate", metavar="PEM", help="TLS: the certificate.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="PEM", help="TLS: its key.")] = None,
    keep: Annotated[str, typer.Option("--keep", metavar="SIZE", help="Bytes of answers that are kept.")] = "10GB",
    keep_days: Annotated[str, typer.Option("--keep-days", metavar="DAYS", help="Days that an unused answer is kept.")] = "90",
    job_memory: Annotated[str, typer.Option("--job-memory", metavar="SIZE", help="Memory of a question.")] = "4GB",
    job_seconds: Annotated[float, typer.Option("--job-seconds", min=1.0, help="Longest time of a question.")] = 3600.0,
    job_cores: Annotated[int, typer.Option("--job-cores", min=1, max=1024, help="Cores of a question that can use several.")] = 1,
    most_body: Annotated[str, typer.Option("--most-body", metavar="SIZE", help="Largest request, with its uploads.")] = "64MB",
    per_minute: Annotated[int, typer.Option("--per-minute", min=1, help="Requests of a token or address in a minute.")] = 1200,
    seconds_a_day: Annotated[
        float | None,
        typer.Option("--seconds-a-day", min=1.0, help="Work of the questions of one token in 24 hours; default: no limit."),
    ] = None,
    log: Annotated[str, typer.Option("--log", metavar="text|json", help="Form of the log on standard error.")] = "text",
    log_level: Annotated[
        str,
        typer.Option("--log-level", metavar="LEVEL", help="debug, info (each request), warning (refused ones), error (faults)."),
    ] = "info",
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics needs no token.")] = False,
    lease: Annotated[
        float, typer.Option("--lease", min=1.0, help="Seconds after which a silent worker has lost its question.")
    ] = 15.0,
    sign_on_header: Annotated[
        str | None, typer.Option("--sign-on-header", metavar="NAME", help="Header in which a trusted proxy says who asks.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option("--trusted-proxy", metavar="ADDRESS", help="Address or network of such a proxy; repeatable.")
    ] = None,
    sign_on_role: Annotated[
        str, typer.Option("--sign-on-role", metavar="read|write", help="Role of whoever signs on at a proxy.")
    ] = "write",
    runs: Annotated[
        list[str] | None,
        typer.Option("--runs", metavar="FOLDER|URL", help="Watched runs that the page shows, or a collector; repeatable."),
    ] = None,
    backup: Annotated[str | None, typer.Option("--backup", metavar="FILE.tar", help="Write a consistent copy, and end.")] = None,
    restore: Annotated[
        str | None, typer.Option("--restore", metavar="FILE.tar", help="Fill an empty --dir from a copy, and end.")
    ] = None,
    audit: Annotated[
        str | None, typer.Option("--audit", metavar="FILE.csv|-", help="Write who asked what, when and how long it took, and end.")
    ] = None,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Of --audit: one name alone.")] = None,
    verb: Annotated[str | None, typer.Option("--verb", metavar="VERB", help="Of --audit: questions of one verb alone.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Of --audit: from a date or time (UTC) on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of --audit: before a date or time (UTC).")] = None,
) -> None:
    token_file = token_file or os.environ.get("WINDTUNNEL_TOKENS") or None
    if expires is not None and new_token is None:
        raise SpecError("--expires", expires, "--new-token NAME:ROLE beside it")
    if new_token is not None or revoke_token is not None:
        typer.echo(_change_tokens(token_file, new_token, revoke_token, expires))
        return
    if (certificate is None) != (key is None):
        raise SpecError("--certificate", certificate, "--certificate and --key together")
    _check_choice("--log", log, ("text", "json"))
    _check_choice("--log-level", log_level, ("debug", "info", "warning", "error"))
    number, ray = _workers(workers)
    settings = ServiceSettings(
        str(Path(dir).absolute()), database or os.environ.get("WINDTUNNEL_DATABASE") or None, number, ray,
        job_memory=_size("--job-memory", job_memory), job_seconds=job_seconds, job_cores=job_cores,
        keep_bytes=_size("--keep", keep), keep_seconds=_days("--keep-days", keep_days) * 86400.0,
        body_bytes=_size("--most-body", most_body), per_minute=per_minute, lease=lease,
        seconds_a_day=seconds_a_day,
    )  # fmt: skip
    try:
        import uvicorn  # noqa: F401
        from sqlalchemy import Engine  # noqa: F401
    except ModuleNotFoundError as error:
        raise NotInstalled("the service needs further packages. Type: pip install 'windtunnel[service]'") from error
    if audit is not None:
        from windtunnel.service.store.shelf import read_moment

        _write_audit(settings, audit, who, verb, read_moment("--since", since), read_moment("--until", until))
        return
    for option, text in (("--who", who), ("--verb", verb), ("--since", since), ("--until", until)):
        if text is not None:
            raise SpecError(option, text, "--audit FILE.csv beside it")
    if list_tokens:
        typer.echo(_list_tokens(settings, token_file))
        return
    if backup is not None or restore is not None:
        from windtunnel.service.store.backup import back_up, restore_copy

        done = back_up(settings, Path(backup)) if backup is not None else restore_copy(settings, Path(str(restore)))
        typer.echo(done)
        return
    from windtunnel.service.page import GET_PAGE, has_page
    from windtunnel.service.page.watched.places import check_runs
    from windtunnel.service.serve import ServePlace, serve
    from windtunnel.service.web.guard import proxy_sign_on

    watched = check_runs(runs or ())

    def tell(address: str) -> None:
        typer.echo(f"serving {dir} at {address}")
        typer.echo(f"page: {address}/ui" if has_page() else f"no page: {GET_PAGE}")

    serve(
        settings,
        ServePlace(
            host,
            port,
            token_file,
            tuple(name or ()),
            certificate,
            key,
            open_metrics,
            log,
            log_level,
            proxy_sign_on(sign_on_header, trusted_proxy or (), sign_on_role),
        ),
        tell,
        _page(watched) if has_page() else None,
    )


def _page(runs: tuple[str, ...]) -> Callable[[Any, Any], None]:
    from windtunnel.service.page.app import mount_page

    return lambda app, door: mount_page(app, door, runs)


def _change_tokens(file: str | None, new: str | None, revoked: str | None, expires: str | None) -> str:
    """Makes a token, or revokes some; returns what to print."""
    from windtunnel.service.web.tokens import add_token, revoke_tokens

    if file is None:
        option, text = ("--new-token", new) if new is not None else ("--revoke-token", revoked)
        raise SpecError(option, text, "--token-file FILE beside it")
    if new is not None:
        return add_token(file, new, None if expires is None else _days("--expires", expires))
    number = revoke_tokens(file, str(revoked))
    return f"{number} token{'s' if number > 1 else ''} of {file} revoked: a running service refuses from its next request on."


def _list_tokens(settings: ServiceSettings, file: str | None) -> str:
    """A line for each token; when they were last used is known where the service has run."""
    from windtunnel.service.store.blobs import Blobs
    from windtunnel.service.store.database import FILE, open_database
    from windtunnel.service.store.shelf import Shelf
    from windtunnel.service.web.tokens import list_tokens, read_tokens

    if file is None:
        raise SpecError("--list-tokens", None, "--token-file FILE beside it")
    tokens, folder = read_tokens(file), Path(settings.folder)
    if settings.database is None and not (folder / FILE).exists():
        return list_tokens(tokens, {})
    database = open_database(folder, settings.database)
    try:
        return list_tokens(tokens, Shelf(database, Blobs(settings.blobs)).uses())
    finally:
        database.close()


def _write_audit(
    settings: ServiceSettings, target: str, who: str | None, verb: str | None, since: float | None, until: float | None
) -> None:
    """To a file for its owner alone, or to standard output."""
    from windtunnel.service.store.blobs import Blobs
    from windtunnel.service.store.database import FILE, open_database
    from windtunnel.service.store.shelf import Shelf, write_audit

    folder = Path(settings.folder)
    if settings.database is None and not (folder / FILE).exists():
        raise FileError("--audit", str(folder), "the --dir or --database of a service", f"There is no {FILE} in it.")
    database = open_database(folder, settings.database)
    try:
        rows = Shelf(database, Blobs(settings.blobs)).audit_rows(who, verb, since, until)
        if target == "-":
            write_audit(rows, sys.stdout)
            return
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8", newline="") as file:
            number = write_audit(rows, file)
        typer.echo(f"{number:,} rows in {target}")
    except OSError as error:
        raise FileError("--audit", target, "a file that can be written", f"{error.strerror}.") from error
    finally:
        database.close()


def _workers(text: str) -> tuple[int, str | None]:
    if text == "ray" or text.startswith("ray:"):
        return 1, text if text.startswith("ray://") and text != "ray://" else text.partition(":")[2].strip("/") or "auto"
    if not text:
        return len(os.sched_getaffinity(0)), None
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise SpecError("--workers", text, "a number from 1 to 1024, ray, or ray://HOST:PORT")
    return int(text), None


def _check_choice(option: str, text: str, allowed: tuple[str, ...]) -> None:
    if text not in allowed:
        raise SpecError(option, text, ", ".join(allowed))


def _size(option: str, text: str) -> int:
    try:
        found = int(parse_size(text))
    except ValueError as error:
        raise SpecError(option, text, "a size, such as 10GB or 512MiB") from error
    if found < 1:
        raise SpecError(option, text, "a size above 0")
    return found


def _days(option: str, text: str) -> float:
    try:
        return float(parse_days(text))
    except ValueError as error:
        raise SpecError(option, text, "days, such as 90 or '3 weeks'") from error
