"""Self-tests: each measures on this machine or says why it does not, and a pair is measured between two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.network import Machines, can_make_networks
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.fleet.diagnose import network
from windtunnel.fleet.diagnose.__main__ import main
from windtunnel.fleet.diagnose.bisect import Round, bisect
from windtunnel.fleet.diagnose.registry import TESTS, MeasuredFigure, NotApplicableError, SelfTestOptions, run_and_judge, run_test
from windtunnel.fleet.wire.sockets import free_port

SHORT = SelfTestOptions(seconds=0.05, size=1 << 20)
PROGRAM = (sys.executable, "-m", "windtunnel.fleet.diagnose")


def pair(here: tuple[str, ...], there: tuple[str, ...], address: str, *more: str, key: str = "k") -> tuple[int, dict[str, Any]]:
    """The pair test between two processes under their prefixes: exit status and result of the one that connects."""
    environment = os.environ | {"WINDTUNNEL_FLEET_PAIR_KEY": key}
    with subprocess.Popen([*there, *PROGRAM, "pair", "--listen", address, "--json", *more], env=environment, stdout=-1) as other:
        ran = subprocess.run(
            [*here, *PROGRAM, "pair", "--peer", address, "--json", *more],
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        other.communicate(timeout=120)
    return ran.returncode, json.loads(ran.stdout)


def test_it_measures_and_says_on_what() -> None:
    found = run_test("memory-copy", SHORT)
    assert found.passed is True
    assert found.measured is not None
    assert found.measured > 1e6
    assert found.backend


def test_tcp_over_loopback_is_not_taken_for_a_nic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PROGRAM", "no-such-program")
    for options in (SHORT, replace(SHORT, expect=1.0)):
        result = run_test("nic-loopback", options)
        assert result.status == 3
        assert "not a test of a NIC" in result.backend
        assert result.measured is not None
        assert result.measured > 1e6


def test_perftests_table_is_read() -> None:
    """Columns of ib_write_bw --report_gbits: bytes, iterations, peak, average, messages."""
    text = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 185600 0.00 389.20 0.742\n"
    assert network.bandwidth_of(text) == pytest.approx(389.20e9 / 8)
    with pytest.raises(RuntimeError, match="no rate"):
        network.bandwidth_of("Couldn't connect")


@pytest.mark.parametrize(
    ("expect", "value", "passed", "status"), [(None, 1.0, True, 0), (1.0, 0.8, True, 0), (1.0, 0.79, False, 1)]
)
def test_a_figure_is_judged_by_the_share_of_what_is_expected(expect: float | None, value: float, passed: bool, status: int) -> None:
    found = run_and_judge("x", "B/s", SelfTestOptions(expect=expect), lambda asked: MeasuredFigure(value, "made up"))
    assert (found.passed, found.status) == (passed, status)


def test_wrong_data_fails_however_fast() -> None:
    assert (
        run_and_judge("x", "B/s", SelfTestOptions(expect=1.0), lambda asked: MeasuredFigure(9.0, "made up", "it differs")).passed
        is False
    )


def test_what_does_not_apply_and_what_breaks_are_told_apart() -> None:
    def absent(asked: SelfTestOptions) -> MeasuredFigure:
        raise NotApplicableError("no GPU")

    def broken(asked: SelfTestOptions) -> MeasuredFigure:
        raise RuntimeError("CUDA error: an illegal memory access")

    assert run_and_judge("x", "B/s", SelfTestOptions(), absent).status == 3
    assert run_and_judge("x", "B/s", SelfTestOptions(), broken).status == 1
    assert "illegal" in run_and_judge("x", "B/s", SelfTestOptions(), broken).why


def test_the_program_prints_one_line_and_lists_its_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory-copy", "--json", "--seconds", "0.05", "--expect", "1e15"]) == 1
    line = json.loads(capsys.readouterr().out)
    assert set(line) == {"test", "backend", "passed", "measured", "unit", "expected", "seconds", "why"}
    assert main(["--list"]) == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == list(TESTS)
    assert main(["gremlin"]) == 2


def test_what_does_not_end_in_its_time_has_failed() -> None:
    ran = subprocess.run(
        [*PROGRAM, "pair", "--listen", f"127.0.0.1:{free_port()}", "--limit", "0.5", "--json"], capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["passed"] is False


def test_a_stranger_is_refused_and_the_peer_is_not() -> None:
    host, port = "127.0.0.1", free_port()
    taking = replace(SHORT, listen=f"{host}:{port}", key="ours", limit=20.0)
    got: list[float] = []

    def take() -> None:
        with network.server(taking) as connection:
            got.append(network.pull(connection))

    thread = threading.Thread(target=take)
    thread.start()
    with network.client(replace(taking, peer=taking.listen, key="another")) as connection:
        assert connection.recv(1) == b""  # closed
    with network.client(replace(taking, peer=taking.listen)) as connection:
        network.push(connection, 0.05)
    thread.join(60)
    assert len(got) == 1


def test_a_pair_is_measured_by_both() -> None:
    address = f"127.0.0.1:{free_port()}"
    status, found = pair((), (), address, "--seconds", "0.2")
    assert status == 0
    assert found["measured"] > 1e6
    assert found["backend"].startswith("TCP 127.0.0.1")


def test_options_that_lack_are_named() -> None:
    with pytest.raises(SpecError, match="--listen"):
        run_test("pair", SHORT)
    with pytest.raises(SpecError, match="HOST:PORT"):
        run_test("pair", replace(SHORT, peer="nowhere"))
    with pytest.raises(SpecError, match="--world"):
        run_test("all-reduce", SHORT)
    with pytest.raises(UnknownName):
        run_test("gremlin", SHORT)


@pytest.mark.skipif(not can_make_networks(), reason="needs root, ip and tc")
def test_the_node_behind_a_limited_link_is_found() -> None:
    """Six machines at 400 Mbit/s whose fourth sends and takes at 40: pairs over TCP find it, and nobody else."""
    fast, slow, bad = 4e8, 4e7, 3
    with Machines(6, fast) as machines:
        for other in set(range(6)) - {bad}:
            machines.shape(bad, other, slow)
        numbers = {f"m{at}": at for at in range(6)}

        def run_round(pairs: Round) -> list[bool]:
            passed = []
            for first, second in pairs:  # one after the other: the machines share two cores
                one, two = numbers[first], numbers[second]
                address = f"{machines.address(two)}:18500"
                status, found = pair(
                    machines.prefix(one),
                    machines.prefix(two),
                    address,
                    "--seconds",
                    "1",
                    "--expect",
                    f"{fast / 8}",
                    "--share",
                    "0.5",
                )
                assert found["measured"] is not None
                passed.append(status == 0)
            return passed

        found = bisect(list(numbers), run_round)
    assert found.bad == ("m3",)
    assert found.links == ()
