"""What a stranger tries: each is refused with an error that says so, and none is a fault of the service."""

from __future__ import annotations

import gzip
import io
import json
import socket
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.served import PATIENCE, ServedProcess, error_of

JOB = "llama3-8b-8xh100"
SECRET = "root:x:0:0"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("predict", {"job": "../../etc/passwd"}),
        ("predict", {"job": "/etc/passwd"}),
        ("predict", {"job": "~/x.toml"}),
        ("predict", {"job": "file:///etc/passwd"}),
        ("predict", {"job": "https://example.org/x.toml"}),
        ("predict", {"job": "a\x00b"}),
        ("predict", {"job": JOB, "profile": "/etc/passwd"}),
        ("predict", {"job": JOB, "set": ["cluster.node.gpu.kernels_from=/etc/passwd"]}),
        ("predict", {"job": JOB, "set": {"cluster.fabric.graph": "../../etc/passwd"}}),
        ("predict", {"job": JOB, "beside": ["/etc/passwd plan.tp=2"]}),
        ("predict", {"job": JOB, "background": ["/etc/passwd@1ms"], "network": "flow"}),
        ("search", {"job": JOB, "space": "/etc/passwd"}),
        ("compare", {"things": ["/etc/passwd", JOB]}),
        ("import", {"paths": ["/etc/passwd"]}),
        ("collective", {"cluster": "h100-ib", "algorithm": "/etc/passwd"}),
        ("serve-predict", {"model": "llama3.1-8b", "on": "h100-ib", "trace": "/etc/passwd"}),
        ("fleet/show", {"run": "http://127.0.0.1:1/"}),
        ("fleet/hang", {"paths": ["http://169.254.169.254/"]}),
    ],
)
def test_no_argument_names_a_file_of_the_server(verb: str, arguments: dict[str, Any], service: ServedProcess) -> None:
    answer = service.ask(verb, **arguments)
    assert answer[0] == 422 and error_of(answer)["kind"] in ("FileError", "SpecError")
    assert SECRET not in answer[2].decode()


JOB_FILES = {
    "base": 'base = "/etc/passwd"\n',
    "relative base": 'base = "../../../../etc/passwd"\n',
    "kernels": f'base = "{JOB}"\n[cluster.node.gpu]\nkernels_from = "/etc/passwd.json"\n',
    "graph": f'base = "{JOB}"\n[cluster.fabric]\ngraph = "/etc/passwd"\n',
    "topology": f'base = "{JOB}"\n[runtime.nccl]\nNCCL_TOPO_FILE = "/etc/passwd"\n',
    "cluster": 'base = "llama3-8b-8xh100"\ncluster = "/etc/passwd"\n',
    "model": 'model = "/etc/passwd"\ncluster = "h100-ib"\n',
}


@pytest.mark.parametrize("name", JOB_FILES)
def test_no_path_in_an_upload_names_a_file_of_the_server(name: str, service: ServedProcess) -> None:
    answer = service.ask("predict", job="job.toml", files={"job.toml": JOB_FILES[name]})
    assert answer[0] == 422, answer
    assert SECRET not in answer[2].decode() and "daemon" not in answer[2].decode()


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "a//b", "", ".", "~x", "-x", "a\\b", "a\nb", "x" * 300, "a/" * 20 + "b"]
)
def test_no_upload_lands_elsewhere(name: str, service: ServedProcess) -> None:
    answer = service.ask("predict", job=JOB, files={name: "x"})
    assert answer[0] == 422 and error_of(answer)["field"] == "files"


def bomb_yaml() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines) + "\nmodel: *a11\n"


def zipped() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", b"\0" * (64 << 20))
    return raw.getvalue()


def tarred() -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as file:
        member = tarfile.TarInfo("../../evil")
        member.size = 64 << 20
        file.addfile(member, io.BytesIO(b"\0" * member.size))
    return raw.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "aliases.yaml": lambda: bomb_yaml().encode(),
    "deep.json": lambda: b"[" * 200_000,
    "deep.yaml": lambda: b"- " * 50_000 + b"x",
    "zeros.json.gz": lambda: gzip.compress(b"[" + b"0," * (1 << 20)),
    "blanks.gz": lambda: gzip.compress(b" " * (48 << 20)),
    "archive.zip": zipped,
    "archive.tar.gz": tarred,
    "code.pickle": lambda: b"cos\nsystem\n(S'touch evil'\ntR.",
    "weights.pt": lambda: b"\x80\x02cos\nsystem\nq\x00X\x02\x00\x00\x00idq\x01\x85q\x02Rq\x03.",
    "numbers.toml": lambda: b"x = " + b"9" * 100_000,
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("verb", ["predict", "import"])
def test_bombs_are_refused(name: str, verb: str, service: ServedProcess) -> None:
    import base64

    files = {name: {"base64": base64.b64encode(BOMBS[name]()).decode()}}
    answer = service.ask(verb, files=files, **({"job": name} if verb == "predict" else {"paths": [name]}))
    if answer[0] == 202:
        job = service.until(json.loads(answer[2])["id"], "failed")
        assert job["error"]["kind"] != "InternalError"
        return
    assert answer[0] == 422, answer[2][:500]
    assert error_of(answer)["kind"] != "InternalError"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400), (b"[]", 400), (b'"x"', 400), (b'{"a": NaN}', 400), (b"\xff\xfe", 400), (b'{"a":' * 100_000, 400),
        (b'{"job": ' + b"[" * 500 + b"]" * 500 + b"}", 400), (b'{"seed": ' + b"9" * 10_000 + b"}", 400),
        (b'{"job": "\\ud800"}', 422),
        (b'{"files": {"\\ud800": "x"}}', 422), (b'{"files": []}', 422), (b'{"files": {"a": 1}}', 422),
        (b'{"files": {"a": "b", "a/c": "d"}}', 422),
        (b'{"artefacts": {"html": 1}}', 422), (b'{"job": 1e999}', 422),
    ],
)  # fmt: skip
def test_bodies_that_are_no_question(raw: bytes, status: int, service: ServedProcess) -> None:
    assert service.send("POST", "/api/v1/predict", raw=raw)[0] == status


def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "small", ["--most-body", "10kB"], workers=1) as service:
        answer = service.send("POST", "/api/v1/predict", raw=b'{"job": "' + b"x" * 20_000 + b'"}')
        assert answer[0] == 413 and error_of(answer)["kind"] == "BodyTooLarge"
        with socket.create_connection(("127.0.0.1", service.port), PATIENCE) as chunked:  # its length is not declared
            chunked.sendall(b"POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(40):
                    chunked.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except OSError:
                pass  # it was closed amid
            else:
                assert b" 413 " in chunked.recv(4096)


HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'


def test_stored_scripts_are_text(service: ServedProcess) -> None:
    """In names, labels and logs: escaped in pages, and never a page where none was asked for."""
    table = {"base": JOB, "name": HOSTILE, "model": {"layers": 2}, "plan": {"seq": 512}}
    answer = service.ask("predict", job=table, artefacts=["html"])
    if answer[0] == 200:
        status, headers, page = service.send("GET", f"/api/v1/answers/{answer[1]['x-windtunnel-key']}/html")
        assert status == 200 and b"<script>alert(1)" not in page and b"<img src=x" not in page
        assert headers["content-security-policy"].startswith("sandbox") and headers["x-content-type-options"] == "nosniff"
    refused = service.ask("predict", job=HOSTILE)
    assert (
        refused[0] == 422 and refused[1]["content-type"] == "application/json" and refused[1]["x-content-type-options"] == "nosniff"
    )
    page = service.ask("fleet/jobset", name="x", image=HOSTILE, nodes=1, program=["x"])
    assert (
        page[1]["content-type"].startswith(("text/plain", "application/json"))
        and "default-src 'none'" in page[1]["content-security-policy"]
    )


def test_nothing_tells_what_runs_here(service: ServedProcess) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/nothing"),
        ("PUT", "/api/v1/jobs"),
        ("GET", "/api/v1/jobs"),
        ("POST", "/api/v1/none"),
    ):
        status, headers, body = service.send(method, path, {} if method == "POST" else None)
        assert status < 500 and "server" not in headers and b"Traceback" not in body and b"uvicorn" not in body.lower()


def test_names_of_others_are_refused(service: ServedProcess) -> None:
    """DNS rebinding, and pages of other sites."""
    assert service.send("GET", "/api/v1/jobs", headers={"Host": "evil.example"})[0] == 421
    assert service.send("POST", "/api/v1/catalog", {}, {"Origin": "http://evil.example"})[0] == 403
    assert service.send("POST", "/api/v1/catalog", {}, {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert service.send("POST", "/api/v1/catalog", {"kind": "gpus"}, {"Origin": service.url})[0] == 200
    assert service.send("POST", "/api/v1/catalog", raw=b"{}", headers={"Content-Type": "text/plain"})[0] == 415


def test_a_token_in_a_url_is_refused(service: ServedProcess) -> None:
    for name in ("token", "access_token", "api_key"):
        answer = service.send("GET", f"/api/v1/jobs?{name}=wt_abc")
        assert answer[0] == 400 and "make a new token" in error_of(answer)["instead"]


def test_a_slow_client_keeps_nobody_out(service: ServedProcess) -> None:
    """A connection that says nothing, or a letter now and then, is closed; others are served meanwhile."""
    slow = [socket.create_connection(("127.0.0.1", service.port), PATIENCE) for _ in range(20)]
    try:
        for one in slow:
            one.sendall(b"POST /api/v1/predict HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert service.ask("catalog", kind="gpus")[0] == 200
        until = time.monotonic() + PATIENCE
        closed = 0
        for one in slow:
            one.settimeout(max(1.0, until - time.monotonic()))
            try:
                closed += one.recv(100) == b""
            except ConnectionResetError:
                closed += 1
        assert closed == len(slow)
    finally:
        for one in slow:
            one.close()


def test_roles_and_tokens(tmp_path: Path) -> None:
    from windtunnel.service.web.tokens import add_token

    file = tmp_path / "tokens"
    writer, reader = add_token(str(file), "ann:write"), add_token(str(file), "bob:read")
    assert writer not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    with ServedProcess(tmp_path / "kept", ["--token-file", str(file)], workers=1) as service:

        def send(token: str | None, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
            service.token = token
            return service.send(method, path, body)

        assert send(None, "GET", "/healthz")[0] == 200
        assert send(None, "GET", "/api/v1/jobs")[0] == 401 and send("wt_wrong", "GET", "/api/v1/jobs")[0] == 401
        assert send(reader, "GET", "/api/v1/jobs")[0] == 200
        assert send(reader, "POST", "/api/v1/catalog", {"kind": "gpus"})[0] == 403
        made = send(writer, "POST", "/api/v1/catalog", {"kind": "gpus"})
        assert made[0] in (200, 202)
        assert send(reader, "DELETE", "/api/v1/jobs/x")[0] == 403 and send(writer, "DELETE", "/api/v1/jobs/x")[0] == 404
    rows = audit_rows(tmp_path / "kept")
    assert ("ann", "POST /api/v1/catalog") in {(who, what) for who, what, *_ in rows}
    assert ("nobody", 401) in {(who, status) for who, _, _, status in rows} and all(came for _, _, came, _ in rows)
    assert writer not in json.dumps(rows) and reader not in json.dumps(rows)


def audit_rows(folder: Path) -> list[tuple[str, str, str, int]]:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(folder / "service.db")) as connection:
        return connection.execute("select who, what, came_from, status from audit order by number").fetchall()


def test_too_many_requests_wait(tmp_path: Path) -> None:
    with ServedProcess(tmp_path / "kept", ["--per-minute", "60"], workers=1) as service:
        answers = [service.send("GET", "/healthz") for _ in range(60)]
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused and int(refused[0][1]["retry-after"]) >= 1 and error_of(refused[0])["kind"] == "TooOften"
