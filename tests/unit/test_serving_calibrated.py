"""Host and client time of a served model by one measured result: recovered where they are known, and judged on other loads.

`served_rows.csv`: loads of public servers, from silicon_sample.csv of ai-dynamo/aiconfigurator (Apache-2.0).
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from test_served_accuracy import benchmark

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.cli import main
from windtunnel.formats.logs.served import MeasuredServer
from windtunnel.serving import Served, ServePlan, Server, serve, server_of
from windtunnel.serving.calibrated import CalibratedServer, ServerCalibration, calibrate_server, read_server_calibration
from windtunnel.serving.load import drawn_load
from windtunnel.spec import load_model

ROWS = Path(__file__).with_name("served_rows.csv")
LINE = "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 1"
USERS = (8, 32)

BENCH = """============ Serving Benchmark Result ============
Successful requests:                     {requests}
Maximum request concurrency:             {users}
Benchmark duration (s):                  {seconds}
Total input tokens:                      {prompts}
Total generated tokens:                  {outputs}
Output token throughput (tok/s):         {rate}
---------------Time to First Token----------------
Mean TTFT (ms):                          {ttft}
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          {tpot}
==================================================
"""


def served(users: int, **engine: float) -> tuple[Server, Served]:
    """A server whose host, client or kernels are as stated, and what it answers to `users`."""
    usual = server_of(load_model("qwen3-8b"), "h100-ib", 1, "vllm", ServePlan(tp=1))
    server = replace(usual, engine=replace(usual.engine, **engine))  # type: ignore[arg-type]
    return usual, serve(server, drawn_load(1024, 256, concurrency=users, requests=4 * users))


def printed(folder: Path, users: int, **engine: float) -> Path:
    """What a benchmark prints of such a server."""
    _, answer = served(users, **engine)
    text = BENCH.format(
        requests=4 * users, users=users, seconds=answer.seconds, prompts=4 * users * 1024, outputs=4 * users * 256,
        rate=answer.tokens_per_s, ttft=1e3 * answer.ttft.mean, tpot=1e3 * answer.tpot.mean,
    )  # fmt: skip
    path = folder / f"bench-{users}.txt"
    path.write_text(text, encoding="utf-8")
    return path


def calibrated(results: list[Path], on: str | None = "h100-ib") -> CalibratedServer:
    found = wt.calibrate([str(path) for path in results], LINE, on)
    assert isinstance(found, CalibratedServer)
    return found


@pytest.mark.parametrize(("gap", "client"), [(2.5e-3, 0.03), (6e-3, 0.0), (0.1e-3, 0.2)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_known_host_and_client_are_found_again(tmp_path: Path, gap: float, client: float, first: int) -> None:
    """Of one load, and the other one is predicted as it was measured."""
    results = [printed(tmp_path, users, gap=gap, client=client) for users in (USERS if first == 0 else USERS[::-1])]
    found = calibrated(results)
    assert found.calibration.kernels == 1.0
    assert found.calibration.gap == pytest.approx(gap, rel=0.02, abs=5e-5)
    assert found.calibration.client == pytest.approx(client, rel=0.05, abs=3e-3)
    held = found.loads[1]
    before, after = (held.errors(answer) for answer in (held.before, held.after))
    assert abs(after["tpot.mean"]) < 0.01 and abs(after["ttft.mean"]) < 0.05 and abs(after["tokens_per_s"]) < 0.02
    assert max(abs(error) for error in before.values()) > 3 * max(abs(error) for error in after.values())


def test_faster_kernels_are_no_host_time(tmp_path: Path) -> None:
    found = calibrated([printed(tmp_path, users, kernels=0.7) for users in USERS])
    assert found.calibration.gap == 0.0 and 0.7 < found.calibration.kernels < 0.8
    held = found.loads[1]
    assert abs(held.errors(held.after)["tpot.mean"]) < 0.03 < 0.3 < abs(held.errors(held.before)["tpot.mean"])


def test_a_result_as_predicted_changes_nothing(tmp_path: Path) -> None:
    found = calibrated([printed(tmp_path, 16)])
    assert found.calibration.gap == found.usual.gap and found.calibration.client < 1e-3 and len(found.loads) == 1


def test_a_rate_of_tokens_is_enough() -> None:
    usual, answer = served(16, gap=3e-3)
    measured = MeasuredServer("a bench", {"tokens_per_s": answer.tokens_per_s})
    load = drawn_load(1024, 256, concurrency=16, requests=64)
    assert calibrate_server([(measured, usual, load)]).calibration.gap == pytest.approx(3e-3, rel=0.03)
    with pytest.raises(WindtunnelError, match="tokens a second"):
        calibrate_server([(MeasuredServer("a bench", {"ttft": {"mean": 0.1}}), usual, load)])


@pytest.mark.parametrize("model, backend, most", [("Qwen/Qwen3-32B", "vllm", 0.1), ("Qwen/Qwen3.5-397B-A17B", "sglang", 0.06)])
def test_public_servers_get_nearer_on_loads_that_were_left_out(model: str, backend: str, most: float) -> None:
    """Each measured load predicts the others of the same server: errors of a token fall, to `most` at most."""
    served_rows = benchmark()
    with ROWS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["model_path"], row["backend"]) == (model, backend)]
    rows = [row for row in rows if row["tp_size"] == "8"]
    loads = []
    for row in rows:
        users = served_rows.users_of(row)
        lengths = [f"{round(0.8 * int(row[n]))}-{row[n]}" if served_rows.is_public(row) else row[n] for n in ("isl", "osl")]
        figures = {"ttft": {"mean": float(row["silicon_ttft_ms"]) / 1e3}, "tpot": {"mean": float(row["silicon_tpot_ms"]) / 1e3}}
        load = drawn_load(*lengths, concurrency=users, requests=3 * users)
        loads.append((MeasuredServer(row["id"], figures), served_rows.predict_row(row, each=1).server, load))
    before, after = list[float](), list[float]()
    for place in range(len(loads)):
        found = calibrate_server([loads[place], *loads[:place], *loads[place + 1 :]])
        for held in found.loads[1:]:
            before.append(abs(math.log1p(held.errors(held.before)["tpot.mean"])))
            after.append(abs(math.log1p(held.errors(held.after)["tpot.mean"])))
    assert len(before) >= 6 and fmean(after) < min(most, fmean(before))


def test_the_verb_writes_what_serve_predict_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [printed(tmp_path, users, gap=4e-3, client=0.05) for users in USERS]
    script, out = tmp_path / "start.sh", tmp_path / "server.toml"
    script.write_text(LINE + "\n", encoding="utf-8")
    assert main(["calibrate", *map(str, results), "--job", str(script), "--on", "h100-ib", "-o", str(out)]) == 0
    shown = capsys.readouterr()
    assert "host between passes" in shown.out and "left out" in shown.out and "serve-predict" in shown.err
    calibration = read_server_calibration(out)
    assert calibration.gap == pytest.approx(4e-3, rel=0.02) and calibration.source == "bench-8.txt"
    options = ["--on", "h100-ib", "--isl", "1024", "--osl", "256", "--concurrency", "32", "--requests", "128", "--json", "-"]
    answers = []
    for more in ([], ["--calibration", str(out)]):
        assert main(["serve-predict", str(script), *options, *more]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    plain, tuned = answers
    assert any("calibrated: host 4." in note for note in tuned["notes"])
    assert tuned["tpot"]["mean"] > plain["tpot"]["mean"] + 3e-3 and tuned["tokens_per_s"] < plain["tokens_per_s"]


@pytest.mark.parametrize("text", ["[kernels]\ngemm = 1.1\n", "[server]\ngap = -1.0\n", "[server]\ngap = 0.1\nspeed = 2\n"])
def test_other_calibrations_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError, match="server"):
        read_server_calibration(tmp_path / "x.toml")


def test_a_machine_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError, match="--on"):
        calibrated([printed(tmp_path, 8)], on=None)


def test_both_sides_of_a_server_take_it(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text("[server]\ngap = 0.004\nclient = 0.05\n", encoding="utf-8")
    asked = {"gpus": 2, "tp": 1, "prefill": "gpus=1,tp=1", "isl": 1024, "osl": 128, "concurrency": 8, "requests": 16}
    plain, tuned = (wt.serve_predict("qwen3-8b", "h100-ib", calibration=given, **asked) for given in (None, path))  # type: ignore[arg-type]
    assert tuned.tpot.mean > plain.tpot.mean + 3e-3 and tuned.ttft.mean > plain.ttft.mean + 0.05
    assert ServerCalibration(gap=0.0).kernels == 1.0
