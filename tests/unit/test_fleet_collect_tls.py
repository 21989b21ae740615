"""A collector over TLS: who has its secrets ships and asks, a stranger does neither. Real processes on loopback."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_collectors import Server, batch_of, collecting

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.fleet.batch import encode
from windtunnel.fleet.recorded import CollectorClient
from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.ship import NodeShipper, ShipPolicy
from windtunnel.fleet.ship.post import connection_to, secrets_at
from windtunnel.fleet.wire.secrets import FILE, KEY, VARIABLE, make_secrets
from windtunnel.records.sections import Section

QUICK = ShipPolicy(interval=0.05, linger=0.1, patience=1.0, timeout=20.0)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(VARIABLE, raising=False)
    with collecting(tmp_path / "run", secrets=str(tmp_path / "keys")) as made:
        yield made


def ring(folder: Path) -> None:
    writer = RingWriter(folder / "rank-000000.ring", "job", 0, 1)
    writer.rewrite(writer.write(Section.CALL, 0, 5), 3, 3, RowState.DONE)
    writer.mark_ended(0)


def test_who_has_the_secrets_ships_and_asks(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    ring(tmp_path / "rings")
    assert NodeShipper(tmp_path / "rings", server.url, QUICK, secrets=str(tmp_path / "keys")).run().rows == 1
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys" / FILE))  # of a node that has the file alone
    run = CollectorClient(server.url)
    assert [(beat.rank, beat.ended) for beat in run.heartbeats()] == [(0, 0)] and len(run.sections()) == 1
    run.close()
    assert main(["fleet", "show", server.url, "--json", "-"]) == 0
    assert '"findings"' in capsys.readouterr().out


def test_the_key_is_the_owners_and_stays_the_same(server: Server, tmp_path: Path) -> None:
    for name in (FILE, KEY):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    before = (tmp_path / "keys" / FILE).read_bytes()
    server.kill(15)
    with collecting(tmp_path / "run", secrets=str(tmp_path / "keys")):
        assert (tmp_path / "keys" / FILE).read_bytes() == before


def test_a_stranger_is_refused(server: Server, tmp_path: Path) -> None:
    batch = encode(batch_of(0, 1, range(2), introduce=True))
    secrets = secrets_at(tmp_path / "keys")
    for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Bearer {secrets.token[:-1]}"}):
        connection, good = connection_to(server.url, 20.0, secrets=tmp_path / "keys")  # the certificate is no secret
        connection.request("POST", "/v1/batches", batch, headers)
        assert connection.getresponse().status == 401
        connection.close()
        connection.request("GET", "/v1/sections", headers=headers)
        assert connection.getresponse().status == 401
        connection.close()
    connection.request("POST", "/v1/batches", batch, good)
    assert connection.getresponse().status == 200
    connection.close()


def test_without_tls_there_is_no_answer(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20.0) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200" not in plain.recv(1000)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", server.port), 20.0) as plain:
        old.wrap_socket(plain)


def test_a_collector_with_another_certificate_gets_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_secrets(tmp_path / "others")
    ring(tmp_path / "rings")
    with pytest.raises(SpecError, match="whose secrets these are"):
        NodeShipper(tmp_path / "rings", server.url, QUICK, secrets=str(tmp_path / "others")).run()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "others"))
    with pytest.raises(FileError, match="certificate"):
        CollectorClient(server.url).heartbeats()


def test_secrets_that_others_can_read_are_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "keys" / FILE).chmod(0o644)
    with pytest.raises(FileError, match="chmod 600"):
        connection_to(server.url, 1.0, secrets=tmp_path / "keys")


def test_the_shipper_of_a_node_takes_secrets_from_its_environment(server: Server, tmp_path: Path) -> None:
    ring(tmp_path / "rings")
    command = [sys.executable, "-m", "windtunnel.fleet.ship", str(tmp_path / "rings"), server.url, "0.1"]
    none = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert none.returncode == 2 and "--secrets DIR" in none.stderr
    with_them = {**os.environ, VARIABLE: str(tmp_path / "keys" / FILE)}
    assert subprocess.run(command, env=with_them, timeout=120, check=False).returncode == 0
    connection, headers = connection_to(server.url, 20.0, secrets=tmp_path / "keys")
    connection.request("GET", "/v1/sections", headers=headers)
    answer: http.client.HTTPResponse = connection.getresponse()
    assert answer.status == 200 and b'"rank":[0]' in answer.read()
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["collect", "--dir", "{}", "--host", "0.0.0.0"], "--secrets DIR"),
        (["collect", "--dir", "{}", "--secrets", "{}/k", "--token-file", "{}/t"], "--secrets without --token-file"),
        (["collect", "--dir", "{}", "--secrets", "{}/k", "--unix", "{}/s"], "--secrets without --unix"),
        (["ship", "{}", "--collector", "https://127.0.0.1:1"], "WINDTUNNEL_FLEET_SECRETS"),
        (["ship", "{}", "--collector", "https://127.0.0.1:1", "--secrets", "{}/none"], "No such file"),
        (["show", "https://127.0.0.1:1"], "--secrets DIR"),
        (["run", "--collect", "--listen", "0.0.0.0:1", "--", "true"], "--secrets DIR"),
        (["run", "--collector", "http://h", "--secrets", "{}", "--", "true"], "--collector https://HOST:PORT"),
        (["run", "--collector", "https://h", "--", "true"], "WINDTUNNEL_FLEET_SECRETS"),
    ],
)
def test_bad_input_says_what_to_type(
    arguments: list[str], text: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (VARIABLE, "WINDTUNNEL_FLEET_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["fleet", *(one.format(tmp_path) for one in arguments)]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
