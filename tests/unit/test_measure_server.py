"""A running server as a cell: plan, run, check, use and a prediction, on a stub of an engine whose passes have a known law.

Times are those of the stub (`tests/helpers/stub_server.py`), so they do not depend on the machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from tests.helpers.stub_server import CACHE, CONFIG, FRONT, LONGEST, RUNNING, STEP, StubServer, law
from windtunnel.base.errors import EngineError, FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.cli import main
from windtunnel.measure.served import front_of, passes_in, passes_waited
from windtunnel.profile.campaign import read_campaign, supervise, write_campaign
from windtunnel.profile.served import client as clients
from windtunnel.profile.served.client import ServerClient, ServerRequest, StreamedAnswer
from windtunnel.profile.served.facts import figures_of
from windtunnel.profile.served.loads import KINDS, loads_of
from windtunnel.profile.served.run import FILE, decoding_passes, prompts_behind, prompts_beside, run_loads
from windtunnel.records import read, read_shape
from windtunnel.serving.lengths import Passing
from windtunnel.serving.measured_passes import COLUMNS, law_of_rows, read_passes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(path)


def line_of(model: str) -> str:
    return f"vllm serve {model} --max-num-seqs {RUNNING} --max-num-batched-tokens {STEP} --no-async-scheduling"


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    server = StubServer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "now", server.clock)
        yield server
    server.close()


@pytest.fixture(scope="module")
def cell(stub: StubServer, model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the passes of the stub; a second run takes what the first one's machine was too busy for."""
    folder = tmp_path_factory.mktemp("cell")
    wt.measure.plan(line_of(model), server=stub.url, out=folder, budget="90s")
    made = read_campaign(folder)
    for _ in range(2):
        run_loads(made.gpu, made.server, folder, time.monotonic() + 90.0, tell=lambda line: None, rounds=1)
    return folder


def test_the_plan_is_what_the_server_and_its_line_say(cell: Path, stub: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    said = read_campaign(cell).server
    assert (said["model"], said["engine"], said["release"]) == ("tiny", "vllm", "0.32.0")
    limits = [said[name] for name in ("step_tokens", "running", "most_tokens", "cache_tokens")]
    assert limits == [STEP, RUNNING, LONGEST, CACHE] and said["vocab"] == CONFIG["vocab_size"]
    assert main(["measure", "plan", said["source"], "--server", stub.url, "--budget", "5s"]) == 0
    shown = capsys.readouterr().out
    assert "requests that decode together" in shown and f"{CACHE:,}" in shown and "vllm 0.32.0" in shown


def test_each_pass_is_found_as_the_engine_ran_it(cell: Path) -> None:
    rows = passes_in(cell)
    assert {str(read_shape(row["shape"])["load"]).partition("-")[0] for row in rows} == set(KINDS)
    assert len(rows) >= 25
    for row in rows:
        shape = read_shape(row["shape"])
        assert row["seconds"] == pytest.approx(law(*(float(shape[name]) for name in COLUMNS[1:])), rel=0.01), shape
        if shape["chunks"] == 1 and not shape["decodes"] and row["host_seconds"] is not None:
            assert row["host_seconds"] == pytest.approx(FRONT)


def test_the_law_of_the_passes_is_the_servers(cell: Path) -> None:
    found = read_passes(cell / FILE)
    assert found.has_gaps and found.error < 0.01
    draws = np.random.default_rng(3)
    for _ in range(50):
        prompt, decodes = int(draws.integers(0, STEP - RUNNING)), int(draws.integers(1, RUNNING))
        sizes = (prompt, min(prompt, 1), prompt * (prompt + 1) / 2, decodes, decodes * float(draws.integers(64, 2000)))
        assert found.seconds(Passing(*sizes)) == pytest.approx(law(*sizes), rel=0.02)


def test_a_run_goes_on_where_it_stopped_and_keeps_the_quickest(cell: Path, stub: StubServer) -> None:
    made, before, told = read_campaign(cell), read(cell / FILE), list[str]()
    served, lost = stub.served, len(loads_of(made.server)) - len(before)
    run_loads(made.gpu, made.server, cell, time.monotonic() + 60.0, ["decodes"], told.append, rounds=1)
    assert (stub.served == served + 5 or lost) and f"{len(before)} measured" in told[0]  # those that warm it alone
    run_loads(made.gpu, made.server, cell, time.monotonic() + 3.0, ["mixed"], told.append, rounds=2)
    kept = {read_shape(row["shape"])["load"]: row["seconds"] for row in read(cell / FILE).rows()}
    assert len(kept) == len(read(cell / FILE)) >= len(before)
    assert all(kept[read_shape(row["shape"])["load"]] <= row["seconds"] for row in before.rows())
    card = (cell / "DATA_CARD.md").read_text(encoding="utf-8")
    assert "forward passes of a running server" in card and "round_trip_us" in card and "Apache-2.0" in card


def test_check_and_use_predict_a_load_that_was_not_measured(
    cell: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SpecError, match="measure check"):
        wt.measure.use(cell)
    checked = wt.measure.check(cell, budget="60s")
    assert checked.of == "passes" and checked.held_out[0].rows >= 5 and checked.held_out[0].mape_pct < 2.0
    first, each = checked.steps
    assert "first token" in first.what and each.pace == pytest.approx(1.0, abs=0.05)
    assert abs(each.error_pct) < 15.0 and 0.3 < first.predicted / first.measured < 3.0
    used = wt.measure.use(cell, anyway=True)
    words = used.commands[0].split()
    assert words[:2] == ["windtunnel", "serve-predict"]
    assert main(["measure", "use", str(cell), "--anyway"]) == 0 and "serve-predict" in capsys.readouterr().out
    server = {"step_tokens": STEP, "running": RUNNING, "sync": True, "calibration": used.jobs[0]}
    said = wt.serve_predict(model, used.machine, tp=1, passes=used.kernels, concurrency=1, requests=3, isl=100, osl=20, **server)
    assert said.tpot.mean == pytest.approx(law(0, 0, 0, 1, 110), rel=0.02)
    assert said.ttft.mean == pytest.approx(FRONT + law(100, 1, 5050, 0, 0), rel=0.05)
    assert said.room.lane_tokens == pytest.approx(CACHE, rel=0.01)
    assert main(["measure", "check", str(cell), "--budget", "60s"]) == 0
    assert "Passes that were held back" in capsys.readouterr().out


def test_rows_that_are_not_as_sealed_are_refused(cell: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(cell / FILE)
    place = table.column_names.index("seconds")
    forged = table.set_column(place, table.field(place), [[1.0005 * one for one in table["seconds"].to_pylist()]])
    write_campaign(read_campaign(cell), tmp_path)
    pq.write_table(forged.replace_schema_metadata(table.schema.metadata), tmp_path / FILE)
    with pytest.raises(FileError, match="seal"):
        wt.measure.check(tmp_path)


def test_the_budget_is_kept_and_what_was_measured_stays(model: str, tmp_path: Path) -> None:
    """In a process of its own; passes take long, so few loads end in time."""
    server = StubServer(pause=0.02, watched=False)
    try:
        wt.measure.plan(line_of(model), server=server.url, out=tmp_path, budget="10s")
        for _ in range(4):  # a busy machine may not even begin in time
            assert supervise(tmp_path, 10.0) <= 1.1 * 10.0
            (measured,) = wt.measure.list_cells(tmp_path)
            if measured.rows:
                break
        assert 0 < measured.rows < 20 and measured.checked == "not checked" and measured.licence == "Apache-2.0"
        with pytest.raises(SpecError, match="measure run"):
            wt.measure.check(tmp_path)
    finally:
        server.close()


@pytest.mark.parametrize(
    "fault, words",
    [
        ("key", "export WINDTUNNEL_SERVER_KEY"),
        ("words", "Prompts are sent as token ids"),
        ("whole", "streams its tokens"),
        ("short", "1 of 8 tokens"),
        ("model", "/v1/models"),
        ("error", "out of memory"),
        ("garbled", "chunks of JSON"),
        ("others", "3 requests that are not ours"),
    ],
)
def test_a_server_that_does_otherwise_is_refused_with_what_to_type(model: str, tmp_path: Path, fault: str, words: str) -> None:
    server = StubServer(fault)
    try:
        with pytest.raises(WindtunnelError, match=words):
            made = wt.measure.plan(line_of(model), server=server.url, out=tmp_path)
            run_loads(made.gpu, made.server, tmp_path, time.monotonic() + 30.0)
    finally:
        server.close()


def test_a_key_is_sent_and_errors_come_through_the_process(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer("key")
    monkeypatch.setenv(clients.KEY, "open")
    try:
        wt.measure.plan(line_of(model), server=server.url, out=tmp_path)
        assert "open" not in (tmp_path / "plan.json").read_text(encoding="utf-8").split('"')
        monkeypatch.delenv(clients.KEY)
        with pytest.raises(EngineError, match=clients.KEY):
            wt.measure.run(tmp_path, budget="20s")
    finally:
        server.close()


@pytest.mark.parametrize(
    "asked, kind, words",
    [
        ({"server": "http://127.0.0.1:9"}, SpecError, "curl http"),
        ({"server": "ftp://there"}, SpecError, "--server http://127.0.0.1:8000"),
        ({"server": "http://there:99999"}, SpecError, "port"),
        ({"server": "{url}", "model": "tinny"}, UnknownName, "Did you mean 'tiny'"),
        ({"server": "{url}", "job": None}, SpecError, "measure plan config.json"),
        ({"server": "{url}", "sets": ("plan.pp=2",)}, SpecError, "plan.tp=N"),
        ({"server": "{url}", "gpu": "h1000"}, UnknownName, "Did you mean"),
    ],
)
def test_other_plans_are_refused(stub: StubServer, model: str, asked: dict[str, Any], kind: type[Exception], words: str) -> None:
    given = {"job": line_of(model), **asked}
    given["server"] = str(given["server"]).replace("{url}", stub.url)
    with pytest.raises(kind, match=words):
        wt.measure.plan(**given)


def stream(sent: float, moments: list[float], prompt: int = 10, counts: list[int] | None = None) -> StreamedAnswer:
    counts = counts or list(range(1, len(moments) + 1))
    return StreamedAnswer(ServerRequest((1,) * prompt, counts[-1]), sent, list(zip(moments, counts, strict=True)))


def test_decoding_passes_are_those_in_which_all_decode() -> None:
    """The first request decodes alone for 10 passes of 1 s, then both for 20 of 2 s, then the second one alone for 5 of 1 s; chunks
    of the second hold two tokens each while both decode."""
    one = [float(number) for number in range(1, 11)]
    both = [10.0 + 2.0 * number for number in range(1, 21)]
    first = stream(0.0, one + both)
    second = stream(
        0.0, [both[0], *both[2::2], *(50.0 + number for number in range(1, 6))], 30, [1, *range(3, 21, 2), *range(21, 26)]
    )
    found = decoding_passes([first, second])
    assert found.seconds and set(found.seconds) == {2.0}
    assert found.cached == pytest.approx(10 + (12 + 30) / 2 - 1 + 30 + (2 + 19) / 2 - 1, abs=2.0)
    assert decoding_passes([stream(0.0, [1.0, 2.0]), stream(0.0, [2.0, 3.0])]).seconds == ()


def test_a_prompt_beside_others_is_the_gap_that_its_token_ends() -> None:
    others = [stream(0.0, [1.0, 2.0, 3.0, 7.0, 8.0]), stream(0.0, [1.1, 2.1, 3.1, 7.1, 8.1])]
    found = prompts_beside(others, [stream(2.5, [7.05]), stream(0.5, [1.05])])  # the second one came before all decoded
    assert found.seconds == (4.0,) and found.front == (pytest.approx(0.55),) and found.cached == 10 + 3 + 10 + 3


def test_prompts_behind_a_full_pass_share_the_next_one() -> None:
    full = stream(0.0, [5.0])
    assert prompts_behind(full, [stream(0.1, [7.0]), stream(0.1, [7.2])], 1.0) == pytest.approx(2.1)
    assert prompts_behind(full, [stream(4.5, [7.0])], 1.0) is None  # came when the full pass may have ended
    assert prompts_behind(full, [stream(0.1, [7.0]), stream(0.1, [9.0])], 1.0) is None  # two passes
    assert prompts_behind(full, [stream(0.1, [4.0])], 1.0) is None  # before the full one


def test_waiting_says_whether_a_scheduler_works_ahead(cell: Path) -> None:
    rows, found = passes_in(cell), read_passes(cell / FILE)
    assert front_of(rows) > 0.0
    mixed = [row for row in rows if "load=mixed" in row["shape"] and row["host_seconds"] is not None]
    fronts = median(row["host_seconds"] for row in rows if "load=prompts" in row["shape"] and row["host_seconds"] is not None)
    assert fronts == pytest.approx(FRONT)
    shapes = [read_shape(row["shape"]) for row in mixed]
    usual = [found.seconds(Passing(0, 0, 0.0, int(one["decodes"]), float(one["cached"]))) for one in shapes]
    for passes, ahead in ((0.5, False), (1.5, True)):
        waits = [{**row, "host_seconds": FRONT + passes * each} for row, each in zip(mixed, usual, strict=True)]
        alone = [row for row in rows if "load=prompts" in row["shape"]]
        waited = passes_waited([*alone, *waits], found)
        assert waited is not None and (waited > 1.0) is ahead
    assert passes_waited([row for row in rows if "load=decodes" in row["shape"]], found) is None


def limits_of(step: int, running: int, most: int, cache: int, mixes: bool = True) -> dict[str, Any]:
    return {"step_tokens": step, "running": running, "most_tokens": most, "cache_tokens": cache, "mixes": mixes}


@pytest.mark.parametrize("limits", [(512, 8, 4096, 40_960), (8192, 1024, 131_072, 0), (2048, 64, 512, 3000), (16, 1, 64, 64)])
def test_loads_keep_the_limits_of_the_server(limits: tuple[int, int, int, int]) -> None:
    step, running, most, cache = limits
    loads = loads_of(limits_of(*limits))
    assert all(load.kind != "mixed" for load in loads_of(limits_of(*limits, mixes=False)))
    assert len({load.name for load in loads}) == len(loads)
    for load in loads:
        assert load.prompt * load.chunks <= step and max(load.decodes, load.chunks) <= running
        assert max(load.prompt, load.context + load.tokens) < most + 1
        assert not cache or load.decodes * (load.context + load.tokens) <= cache
    beginning = loads[: 3 * len({load.kind for load in loads})]
    assert {load.kind for load in beginning} == {load.kind for load in loads}


def test_other_rows_are_no_passes() -> None:
    row = {"name": "engine_pass", "status": "ok", "seconds": 1.0, "shape": "prompt=1 chunks=1"}
    for rows, words in (([row] * 19, "20 passes or more"), ([row] * 20, "shapes with the numbers prompt")):
        with pytest.raises(SpecError, match=words):
            law_of_rows(rows)


def test_figures_of_engines_are_read() -> None:
    text = '# HELP a b\na:b_total{model="x y",le="+Inf"} 3.5\nplain 1e3\nbad line here\nc NaN\n'
    found = {name: (labels, value) for name, labels, value in figures_of(text)}
    assert found["a:b_total"] == ({"model": "x y", "le": "+Inf"}, 3.5) and found["plain"] == ({}, 1000.0)
    assert set(found) == {"a:b_total", "plain", "c"}


def test_sglang_says_its_limits(model: str, tmp_path: Path) -> None:
    server = StubServer(engine="sglang")
    try:
        made = wt.measure.plan(model, server=server.url, out=tmp_path)
    finally:
        server.close()
    said = {name: made.server[name] for name in ("engine", "release", "step_tokens", "running", "cache_tokens", "ahead", "mixes")}
    assert said == {
        "engine": "sglang", "release": "0.5.9", "step_tokens": STEP, "running": RUNNING, "cache_tokens": CACHE, "ahead": True,
        "mixes": False,
    }  # fmt: skip


def test_an_address_keeps_its_path() -> None:
    assert ServerClient("https://there/engine/v1").path == "/engine" and ServerClient("localhost:8000").port == 8000


def test_a_plan_of_a_server_is_read_back(cell: Path) -> None:
    made = read_campaign(cell)
    assert made.slices == () and replace(made, budget=1.0).server == made.server
