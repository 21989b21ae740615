"""A running server as a cell: the plan of its loads, a load that was not measured and its prediction, and its use."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.measure.cells import CHECK, MACHINE, UsedCell, cell_of, checked_cell, datasets_of
from windtunnel.measure.judge import AGAIN, ENOUGH, EVERY, CheckedCell, HeldOut, UnseenStep, every_fifth, reasons_of_check
from windtunnel.profile.campaign import Campaign
from windtunnel.profile.served.client import ServerClient
from windtunnel.profile.served.facts import facts_of
from windtunnel.profile.served.loads import ENGINE_PASS, KINDS, loads_of
from windtunnel.profile.served.run import FILE, ServedPasses
from windtunnel.records import read_shape
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.measured_passes import MeasuredTimes, PassLaw, law_of_rows, numbers_of_rows
from windtunnel.serving.options import ServeOptions
from windtunnel.spec import Cluster, load_gpu

if TYPE_CHECKING:
    from windtunnel.serving import Server
    from windtunnel.serving.answer import Served

Row = Mapping[str, Any]

FRONT_FILE = "server.toml"
"""Seconds of the front end and the client, as `serve-predict --calibration` takes them."""

STAND_IN = "h100-sxm-80gb"
"""Whose figures a GPU has that nobody states; passes come from the server, and its memory is what the server's cache says."""

USERS, PROMPT, OUTPUT, EACH = 6, 180, 56, 3
"""The load that is held back: users, tokens of a request, requests of each user. No load of a plan has these."""

ROUNDS = 3
"""Times that it is sent: the fastest and the median stand beside the prediction."""

SURE = 15.0
"""%, the least error to state of a served load: those of vLLM's own server lie within it (docs/serving.md)."""


def plan_server(url: str, job: str | None, model: str | None, gpu: str, budget: float, sets: Sequence[str]) -> Campaign:
    """The plan for the server at `url`. `job`: a line that starts it, or its model, where /v1/models names none that is known;
    `model`: its name on the server. SpecError for a server that does not answer or is no decoder's, UnknownName for names."""
    facts = facts_of(ServerClient(url), model)
    config = Path(facts.root, "config.json")
    source = job if job is not None else str(config) if config.is_file() else facts.root
    card = load_gpu(gpu).id if gpu != "auto" else f"gpu-of-{ServerClient(url).host}"
    try:
        server = server_on({**asdict(facts), "source": source}, card, sets)
    except SpecError as error:
        if job is not None:
            raise
        hint = f"Type: windtunnel measure plan config.json --server {url}, or the line that starts it in place of the file."
        raise SpecError("--server", source, "a model that is known", hint) from error
    known = {"step_tokens": server.engine.step_tokens, "running": server.engine.running}
    own = {"source": source, "vocab": server.model.vocab, "weights": server.weights}
    table = {**asdict(facts), **known, **own, "mixes": not ENGINES[server.engine.name].prompts_alone}
    return Campaign(card, "server", budget, (), (facts.model,), tuple(sets), server=table)


def server_on(plan: Mapping[str, Any], gpu: str, sets: Sequence[str]) -> Server:
    """The server of a plan as it is simulated, on bare GPUs. Errors as of `serve_predict`."""
    from windtunnel.api.serving import servers_of, with_launch

    server, front = servers_of(with_launch(_options(plan, gpu, sets))[0])
    if front is not None:
        raise SpecError("--server", str(plan["source"])[:60], "a server that computes prompts and tokens on the same copy")
    return server


def _options(plan: Mapping[str, Any], gpu: str, sets: Sequence[str]) -> ServeOptions:
    """The options of a plan's server; `sets`: plan.tp=N, the ranks of its one copy."""
    from windtunnel.api.serving import with_launch

    stated = next((word.removeprefix("plan.tp=") for word in sets if word.startswith("plan.tp=")), "0")
    other = [word for word in sets if not word.startswith("plan.tp=")]
    if other or not stated.isdigit():
        raise SpecError("--set", other[0] if other else stated, "plan.tp=N beside --server: the ranks of its one copy")
    source = str(plan["source"])
    tp = int(stated) or with_launch(ServeOptions(source, bare_cluster(gpu, 1)))[0].tp or 1
    asked = ServeOptions(source, bare_cluster(gpu, tp, plan.get("memory")), tp=tp, sync=plan.get("ahead") is False)
    asked = replace(asked, step_tokens=plan["step_tokens"] or None, running=plan["running"] or None)
    return replace(asked, engine=plan["engine"]) if plan["engine"] else asked


def bare_cluster(gpu: str, count: int, memory: float | None = None) -> Cluster:
    """A cluster of `count` GPUs of the catalogue, or of ones that nobody stated; `memory`: bytes of each."""
    from windtunnel.compute.bench import bench
    from windtunnel.spec.loading.files import names

    card = load_gpu(gpu) if gpu in names("gpus") else load_gpu(STAND_IN).model_copy(update={"id": gpu, "name": gpu})
    return bench(card if memory is None else card.model_copy(update={"memory": memory}), count)


def simulated_server(campaign: Campaign, rows: Sequence[Row], law: PassLaw) -> Server:
    """The server of a plan with what its rows say: whether it schedules ahead, the front end's seconds, and the memory that its
    cache states."""
    plan = dict(campaign.server)
    if plan["ahead"] is None and (waited := passes_waited(rows, law)) is not None:
        plan["ahead"] = waited > 1.0
    server = server_on(plan, campaign.gpu, campaign.sets)
    if plan["cache_tokens"]:
        from windtunnel.serving.room import room_of

        plan["memory"] = server.job.cluster.gpu.memory
        for _ in range(3):  # in steps: activations and the share of states do not grow with it
            room = room_of(server, MeasuredTimes(server, law=law))
            plan["memory"] += (plan["cache_tokens"] - room.lane_tokens) * room.token / server.engine.memory
            server = server_on(plan, campaign.gpu, campaign.sets)
    return replace(server, engine=replace(server.engine, client=front_of(rows), gap=0.0, request_gap=0.0))


def front_of(rows: Sequence[Row]) -> float:
    """Seconds of the first token that lie neither in a pass nor in what the simulation has for every front end."""
    from windtunnel.serving.simulate import FRONT, TOKENISE

    seen = [
        row["host_seconds"] - FRONT - TOKENISE * prompt
        for row in rows
        if (prompt := _lone_prompt(row)) and row["host_seconds"] is not None
    ]
    return max(0.0, median(seen)) if seen else 0.0


def _lone_prompt(row: Row) -> int:
    """Tokens of the prompt of a pass of it alone; 0 for another pass."""
    shape = read_shape(str(row["shape"]))
    return int(shape["prompt"]) if shape["chunks"] == 1 and shape["decodes"] == 0 else 0


def passes_waited(rows: Sequence[Row], law: PassLaw) -> float | None:
    """Passes that a prompt waits for beside decoding requests: half a one in the mean, one more where the scheduler works ahead.
    None where no row says it."""
    from windtunnel.serving.lengths import Passing

    fronts = [row["host_seconds"] for row in rows if _lone_prompt(row) and row["host_seconds"] is not None]
    waited = []
    for row in rows:
        shape = read_shape(str(row["shape"]))
        if shape["chunks"] and shape["decodes"] and row["host_seconds"] is not None and fronts:
            usual = law.seconds(Passing(0, 0, 0.0, int(shape["decodes"]), float(shape["cached"])))
            waited.append((row["host_seconds"] - median(fronts)) / usual)
    return median(waited) if waited else None


def passes_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of a cell that are passes and usable."""
    return [
        row for data in datasets_of(folder).values() for row in data.rows() if row["name"] == ENGINE_PASS and row["status"] == "ok"
    ]


def kind_of(row: Row) -> str:
    """The kind of load that a pass is of."""
    return str(read_shape(str(row["shape"]))["load"]).partition("-")[0]


def judge_server(folder: Path, campaign: Campaign, budget: float) -> CheckedCell:
    """Whether predictions may rest on the passes of a server: a fifth of them is held back, and a load of users that no plan has is
    sent now and predicted. Written to check.json. SpecError where too little was measured, and as of `ServerClient`."""
    cell, rows = cell_of(folder), passes_in(folder)
    held = {shape for kind in KINDS for shape in every_fifth([str(row["shape"]) for row in rows if kind_of(row) == kind])}
    kept = [row for row in rows if row["shape"] not in held]
    if len(held) < ENOUGH:
        raise SpecError(
            "FOLDER", f"{len(held)} passes to hold back", f"{ENOUGH} or more", f"Measure more: windtunnel measure run {folder}."
        )
    law, stated = law_of_rows(kept), 100.0 * error_of_law(kept)
    classes = _held_out([row for row in rows if row["shape"] in held], law, stated)
    steps = unseen_load(campaign, kept, law, max(SURE, stated), budget)
    reasons = reasons_of_check(classes, steps, "passes")
    checked = CheckedCell(str(folder), cell.gpu, not reasons, reasons, classes, steps, (), cell.files, of="passes")
    (folder / CHECK).write_text(json.dumps(checked.as_dict(), indent=1), encoding="utf-8")
    return checked


def error_of_law(rows: Sequence[Row]) -> float:
    """The relative error within which a law meets seven of ten passes that it was not fitted to: every fifth in turn."""
    from windtunnel.serving.lengths import Passing
    from windtunnel.serving.measured_passes import fit_passes

    seconds, sizes = numbers_of_rows(rows)
    errors: list[float] = []
    for turn in range(EVERY):
        out = np.arange(len(rows)) % EVERY == turn
        law = fit_passes(seconds[~out], sizes[~out])
        errors += [
            abs(law.seconds(Passing(*size)) / took - 1.0)
            for size, took in zip(sizes[out].tolist(), seconds[out].tolist(), strict=True)
        ]
    return float(np.quantile(errors, 0.7))


def _held_out(rows: Sequence[Row], law: PassLaw, stated: float) -> tuple[HeldOut, ...]:
    from windtunnel.serving.lengths import Passing

    errors: dict[str, list[float]] = {}
    seconds, sizes = numbers_of_rows(rows)
    for row, took, size in zip(rows, seconds.tolist(), sizes.tolist(), strict=True):
        errors.setdefault(kind_of(row), []).append(100.0 * (law.seconds(Passing(*size)) / took - 1.0))
    whole = [error for found in errors.values() for error in found]
    return tuple(
        HeldOut(
            what, len(found), fmean(map(abs, found)), fmean(found), fmean(abs(error) <= stated for error in found), stated
        )
        for what, found in (("all", whole), *sorted(errors.items()))
    )  # fmt: skip


def unseen_load(campaign: Campaign, rows: Sequence[Row], law: PassLaw, stated: float, budget: float) -> tuple[UnseenStep, ...]:
    """Means of the first token and of each further one of a load that is sent now, beside their prediction; none where the budget
    ends before."""
    passes = ServedPasses(campaign.server)
    ends = passes.client.ends = time.monotonic() + budget
    plan = campaign.server
    users = min(USERS, int(plan["running"]))
    found: list[tuple[float, float]] = []
    paces: list[float] = []
    try:
        passes.warm()
        for _ in range(ROUNDS):
            if found and time.monotonic() > ends - budget / 4:
                break
            paces += paces_now(passes, rows)
            answers = passes.closed_loop(users, PROMPT, OUTPUT, EACH)
            found.append((fmean(one.first_seconds for one in answers), fmean(one.seconds_each for one in answers)))
    except TimeoutError:
        if not found:
            return ()
    pace = fmean(paces) if paces else 1.0
    served = predicted_load(simulated_server(campaign, rows, law), law, users)
    words = f"{users} users, {PROMPT} + {OUTPUT} tokens"
    return tuple(
        UnseenStep(f"{what} of {words}", 1, pace * predicted, median(seen), min(seen), stated, pace)
        for what, predicted, seen in (
            ("first token", served.ttft.mean, [first for first, _ in found]),
            ("each further token", served.tpot.mean, [each for _, each in found]),
        )
    )


def predicted_load(server: Server, law: PassLaw, users: int) -> Served:
    """The load of `unseen_load` as it is predicted."""
    from windtunnel.serving import serve
    from windtunnel.serving.load import drawn_load

    load = drawn_load(PROMPT, OUTPUT, requests=users * EACH, concurrency=users)
    return serve(server, load, times=MeasuredTimes(server, law=law))


def paces_now(passes: ServedPasses, rows: Sequence[Row]) -> list[float]:
    """How long passes take now over how long they took: decoding ones of about as many requests as the load has."""
    names = {read_shape(str(row["shape"]))["load"]: row for row in rows}
    known = [load for load in loads_of(passes.plan) if load.kind == "decodes" and load.name in names]
    near = sorted(known, key=lambda load: (abs(math.log(load.decodes / USERS)), load.context))[:AGAIN]
    again = [(passes.measure(load), names[load.name]["seconds"]) for load in near]
    return [median(now.seconds) / then for now, then in again if now.seconds]


def use_server(folder: Path, campaign: Campaign, anyway: bool) -> UsedCell:
    """Machine and front end of a server as files, beside its passes, and the lines that take them."""
    from windtunnel.serving.calibrated import ServerCalibration, plain_calibration
    from windtunnel.spec.loading.files import toml_lines

    cell, rows = checked_cell(folder, anyway), passes_in(folder)
    server = simulated_server(campaign, rows, law_of_rows(rows))
    machine, front, passes = folder / MACHINE, folder / FRONT_FILE, folder / FILE
    table = server.job.cluster.model_dump(mode="json", exclude_none=True)
    machine.write_text("\n".join(toml_lines(table)) + "\n", encoding="utf-8")
    seal = min(cell.files.values(), default="")[:12]
    source = f"{campaign.server['model']} behind {campaign.server['engine']}, {folder}, seal {seal}, {cell.checked}"
    said = plain_calibration(ServerCalibration(gap=0.0, client=server.engine.client, source=source))
    front.write_text("\n".join(toml_lines(said)) + "\n", encoding="utf-8")
    engine, named = server.engine, str(campaign.server["source"])
    words = ["windtunnel serve-predict", json.dumps(named) if " " in named else named, f"--on {machine} --tp {server.plan.tp}"]
    words += [f"--engine {engine.name} --step-tokens {engine.step_tokens} --running {engine.running}"]
    words += ["" if engine.ahead else "--sync", f"--passes {passes} --calibration {front} --concurrency 16"]
    return UsedCell(replace(cell, used=True), str(passes), str(machine), (str(front),), (" ".join(filter(None, words)),))
