"""A collector on a machine with others: slow connections keep nobody out, and nobody else may read, post or be led there."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_collectors import Server, batch_of, collecting

from windtunnel.fleet.batch import encode
from windtunnel.fleet.recorded import CollectorClient
from windtunnel.fleet.wire.secrets import TOKEN, folder_token, local_token, publish_token

NOBODY = 65534
HALF = b"POST /v1/batches HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextlib.contextmanager
def many_files(count: int) -> Iterator[int]:
    """This process may open so many files, or as many as the machine allows; how many connections that leaves."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = min(count + 500, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, before[0]), before[1]))
    try:
        yield min(count, allowed - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def slow_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that have sent half a head."""
    held = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        with contextlib.suppress(OSError):  # an earlier one's close may be seen here
            sock.sendall(HALF)
        held.append(sock)
    return held


def posts(server: Server, sequence: int) -> int:
    """The status of a real batch; tried again as a shipper does where the connection is closed."""
    for _ in range(20):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return server.ask("POST", "/v1/batches", encode(batch_of(0, sequence, range(sequence, sequence + 1), introduce=True)))[
                0
            ]
        time.sleep(0.25)
    return 0


def test_ten_thousand_slow_connections_starve_nobody(tmp_path: Path) -> None:
    with many_files(10_000) as count, collecting(tmp_path) as server:
        held = slow_connections(server.port, count)
        try:
            assert [posts(server, sequence) for sequence in range(1, 6)] == [200] * 5
            assert server.ask("GET", "/v1/heartbeats")[0] == 200
            files = len(os.listdir(f"/proc/{server._job.pids[0]}/fd"))
            assert files < 512 + 100
        finally:
            for sock in held:
                sock.close()


def test_slow_connections_starve_nobody_where_few_files_may_be_open(tmp_path: Path) -> None:
    """A collector under `ulimit -n 256`, by a new interpreter."""
    command = f"ulimit -n 256; exec {sys.executable} -m windtunnel fleet collect --dir {tmp_path / 'run'} --port 0"
    child = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().rpartition(" at ")[2].strip()
        held = slow_connections(int(url.rpartition(":")[2]), 1000)
        client = CollectorClient(url)
        for _ in range(5):
            assert client.overview()["world"] == 0
        client.close()
        for sock in held:
            sock.close()
    finally:
        child.terminate()
        child.communicate(timeout=60)


def closed_within(sock: socket.socket, seconds: float) -> bool:
    """Whether the other side closes a connection; it is closed here afterwards."""
    with sock:
        sock.settimeout(seconds)
        try:
            while sock.recv(4096):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
    return True


@pytest.mark.parametrize("sent", [b"", HALF, HALF + b"Authorization: Bearer TOKEN\r\nContent-Length: 100\r\n\r\nWTB"],
                         ids=["nothing", "half a head", "half a body"])  # fmt: skip
def test_a_connection_has_a_limited_time_for_its_request(tmp_path: Path, sent: bytes) -> None:
    with collecting(tmp_path, policy={"head_seconds": 0.5, "body_seconds": 0.5, "tick_seconds": 0.1}) as server:
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(sent.replace(b"TOKEN", (tmp_path / TOKEN).read_bytes().strip()))
        assert closed_within(sock, 60)
        client = CollectorClient(server.url)  # a connection that is kept open between requests is not slow
        client.overview()
        time.sleep(1.5)
        client._connection.request("GET", "/v1/hosts", headers=client._headers)
        assert client._connection.getresponse().status == 200
        client.close()


def test_a_head_without_an_end_is_closed(tmp_path: Path) -> None:
    with collecting(tmp_path, policy={"head_seconds": 600.0}) as server:
        sock = socket.create_connection(("127.0.0.1", server.port))
        with contextlib.suppress(OSError):
            sock.sendall(HALF + b"X-Long: " + b"x" * (1 << 22))
        assert closed_within(sock, 60)
        assert server.ask("GET", "/v1/hosts")[0] == 200


def test_tls_that_does_not_begin_is_closed(tmp_path: Path) -> None:
    policy = {"head_seconds": 0.5, "tick_seconds": 0.1}
    with collecting(tmp_path / "run", secrets=str(tmp_path / "keys"), policy=policy) as server:
        sock = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        assert closed_within(sock, 60)


ASK = """
import http.client, os, sys
from windtunnel.fleet.wire.secrets import local_token
"127.0.0.1".encode("idna")  # imported while it may be
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
assert local_token("http://127.0.0.1:{port}") is None
for path in {paths!r}:
    try:
        open(path, "rb").read(1)
        print("read", path)
    except OSError:
        pass
asked = (("GET", "/v1/hosts"), ("GET", "/"), ("GET", "/metrics"), ("GET", "/v1/hosts?token=x"), ("POST", "/v1/batches"))
for method, path in asked:
    connection = http.client.HTTPConnection("127.0.0.1", {port})
    connection.request(method, path, b"" if method == "POST" else None, {{"Authorization": "Bearer "}})
    print(connection.getresponse().status)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_reads_nothing_and_posts_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if str(parent).startswith("/tmp/pytest"):
            parent.chmod(0o755)
    before = os.umask(0)
    try:
        with collecting(tmp_path / "run", policy={"segment_bytes": 1}) as server:
            assert posts(server, 1) == posts(server, 2) == 200
            until = time.monotonic() + 60
            while not list((tmp_path / "run" / "data").glob("sections-*2.parquet")) and time.monotonic() < until:
                time.sleep(0.05)
            found = [path for path in (tmp_path / "run").rglob("*") if path.suffix != ".tmp"]
            assert {path.suffix for path in found} >= {".parquet", ".db"} and tmp_path / "run" / TOKEN in found
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found if path.exists()}
            assert not {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
            text = ASK.format(nobody=NOBODY, port=server.port, paths=[str(path) for path in found if path.is_file()])
            asked = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
            assert asked.stdout.split() == ["401"] * 5, asked.stdout + asked.stderr
    finally:
        os.umask(before)


def test_the_same_user_needs_no_token_and_a_browser_gets_a_page(tmp_path: Path) -> None:
    with collecting(tmp_path) as server:
        assert posts(server, 1) == 200
        client = CollectorClient(server.url)
        assert client.overview()["run"] == "job"
        client.close()
        token = (tmp_path / TOKEN).read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        page = answer.read().decode()
        assert answer.status == 200 and "Nothing stands out" in page and "<h1>job</h1>" in page
        assert answer.getheader("Referrer-Policy") == "no-referrer" and "<script" not in page
        connection.request("POST", f"/v1/batches?token={token}", b"x")  # a page of another site could do that
        assert connection.getresponse().status == 401
        connection.close()
    assert local_token(server.url) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8470", "127.0.0.1.evil.example", "", "[::1", "localhost.evil"])
def test_a_name_that_another_site_has_bound_to_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    with collecting(tmp_path) as server:
        assert server.ask("GET", "/v1/hosts", Host=host)[0] == 421
        for own in ("127.0.0.1:1", "localhost", "[::1]:8470", "LOCALHOST:9"):
            assert server.ask("GET", "/v1/hosts", Host=own)[0] == 200


def test_a_token_is_found_only_while_its_collector_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert local_token("http://127.0.0.1:8470") is None
    path = publish_token("http://127.0.0.1:8470", "secret")
    assert path is not None and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert local_token("http://localhost:8470") == "secret"
    assert local_token("http://10.0.0.1:8470") is None and local_token("https://127.0.0.1:8470") is None
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "started": "1"}))
    assert local_token("http://127.0.0.1:8470") is None  # the process has ended; its number is another's
    path.write_text(json.dumps(told))
    path.chmod(0o644)
    assert local_token("http://127.0.0.1:8470") is None
    path.chmod(0o600)
    path.parent.chmod(0o755)
    assert local_token("http://127.0.0.1:8470") is None  # a folder that others may enter is none of the user's
    elsewhere = publish_token("http://127.0.0.1:8470", "other")
    assert elsewhere is not None and elsewhere.parent != path.parent and stat.S_IMODE(elsewhere.parent.stat().st_mode) == 0o700
    assert local_token("http://127.0.0.1:8470") == "other"
    for damaged in ("", "{", "[]", '{"pid": "x"}'):
        path.parent.chmod(0o700)
        path.write_text(damaged)
        assert local_token("http://127.0.0.1:8470") is None
    token = folder_token(tmp_path)
    assert folder_token(tmp_path) == token and len(token) > 30
    (tmp_path / TOKEN).chmod(0o644)
    assert folder_token(tmp_path) != token  # others may have read it
