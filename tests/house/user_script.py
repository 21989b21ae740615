"""A user's script that calls every function behind a verb of the command line; `make lint` checks its types, and a test runs `ask`.

It imports `windtunnel` alone. `ask` returns what each verb answered, by the verb's name; `measure` and `fit_catalogue` need a GPU's
time, or minutes, and are only checked.
"""

from __future__ import annotations

import json
from pathlib import Path

import windtunnel as wt

SMALL = ["model.layers=2", "plan.global_batch=8", "plan.seq=1024"]
FAILS = ["reliability=llama3-2024"]

RL = {
    "workload": "rl", "name": "small", "model": "qwen2.5-1.5b", "cluster": {"base": "h100-ib", "gpus": 8},
    "rl": {"prompts": 8, "samples": 2, "prompt": 64, "response": "100~1<400"},
}  # fmt: skip


def ask(folder: Path) -> dict[str, object]:
    """`folder` has rings/, kept/, kernels.parquet and rows.csv; traces, schedules and settings are written into it."""
    job = wt.load("llama3-8b-8xh100", SMALL)
    return {**ask_jobs(job), **ask_choices(job), **ask_network(folder), **ask_runs(folder, job), **ask_records(folder)}


def ask_jobs(job: wt.Job) -> dict[str, object]:
    answer: wt.Answer = wt.predict(job)
    assert answer.fits and answer.step_time_s > 0.0
    again = wt.load_with_notes("llama3-8b-8xh100", SMALL, on="h100-ib")
    assert again.job.model == job.model and not again.ignored
    return {
        "predict": answer,
        "memory": wt.memory(job, replay=True),
        "serve-predict": wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, osl=16, concurrency=2),
        "serve-fleet": wt.serve_fleet("llama3.1-8b", "h100-ib", tp=1, osl=16, users=4, requests=8),
        "serve-search": wt.serve_search("llama3.1-8b", "h100-ib", 1, users=[2], processes=1),
        "goodput": wt.goodput(wt.load("llama3-8b-8xh100", FAILS), days=10.0, replicas=0),
        "sensitivity": wt.sensitivity(job),
        "compare": wt.compare(job, wt.load("llama3-8b-8xh100", [*SMALL, "plan.recompute=full"])),
        "catalog": wt.catalog("gpus", "h100-sxm-80gb"),
        "catalog add": wt.add_entry("gpu", "x1", memory="288GB", bandwidth="22TB/s", bf16="4PFLOP/s").text,
    }


def ask_choices(job: wt.Job) -> dict[str, object]:
    found: wt.SearchResult = wt.search(job, processes=1, limits=wt.SearchLimits(gap=0.01))
    planned: wt.Planned = wt.plan(budget=2e5, days=30.0, on=["h100-ib"], gpus=[64])
    assert found.ranked and planned.alternatives
    designed = wt.design(job, {"cluster.node.gpu.memory_bandwidth": "2TB/s..4TB/s"}, trials=2, fixed_plan=True)
    return {"search": found, "plan": planned, "design": designed}


def ask_network(folder: Path) -> dict[str, object]:
    (folder / "rl.json").write_text(json.dumps(RL), encoding="utf-8")
    table = wt.collective("h100-ib", "all_reduce", 16, "1M:4M")
    ended: wt.FlowsResult = wt.flows("fat_tree:k=4,link=400Gb/s", "permutation:bytes=1MiB")
    assert float(ended.fct.max()) > 0.0
    traffic: wt.Traffic | None = wt.predict(wt.load("llama3-8b-8xh100", SMALL), "flow").traffic
    assert traffic is not None and traffic.engine == "flow"
    return {
        "collective": table,
        "flows": ended.summary(),
        "fleet startup": wt.fleet.start_costs("dp=8,tp=2"),
        "rl-predict": wt.rl_predict(folder / "rl.json"),
    }


def ask_runs(folder: Path, job: wt.Job) -> dict[str, object]:
    wt.export(job, "kineto").save(folder / "trace.json")
    wt.export(job, "chakra").save(folder / "chakra")
    wt.export(job, "goal").save(folder / "step.goal")
    wt.export(job, "simai").save(folder / "workload.txt")
    wt.export(wt.load_cluster("h100-ib", ["gpus=8"]), "astra-sim").save(folder / "astra")
    reading = wt.read(folder / "trace.json")
    assert reading.content is wt.Content.RUN
    run: wt.Run = reading.value
    system, network = folder / "astra" / "system.json", folder / "astra" / "network.yml"
    return {
        "import FILE...": reading,
        "export": wt.export(job, "toml").files,
        "runs show": wt.runs.show("trace.json"),
        "compare RUN JOB": wt.compare(run, job),
        "whatif": wt.whatif(run, ["no-host-gaps", "scale:gemm=0.5"]),
        "calibrate": wt.calibrate(folder / "trace.json", job),
        "replay": wt.replay(folder / "chakra", "h100-ib"),
        "replay --astra-sim": wt.replay_astra_sim(folder / "chakra", system, network),
        "replay --loggops": wt.replay_loggops(folder / "step.goal", "L=2500,o=1500"),
        "simai": wt.simai(folder / "workload.txt", 8, nvlink=360.0),
    }


def ask_records(folder: Path) -> dict[str, object]:
    measured = wt.read_kernel_times(folder / "kernels.parquet").data
    fitted = wt.fit.kernels(measured)
    wt.fit.save_kernels(fitted, folder / "mine.json")
    rings, kept = folder / "rings", folder / "kept"
    job = wt.load("llama3-8b-8xh100", FAILS)
    return {
        "validate": wt.validate([folder / "rows.csv"]),
        "suite": wt.suite(["llama3-8b"], on=["h100-ib"], frameworks=["nemo"], gpus=[8]),
        "profile import": measured,
        "profile show": wt.profile.show(measured),
        "profile gains": wt.profile.gains(measured),
        "profile export": wt.profile.export(measured),
        "fit kernels": fitted,
        "fit transfer": wt.fit.transfer(leave=["h20"]),
        "fit power": wt.fit.power()[2],
        "fleet show": wt.fleet.judge_run(rings),
        "fleet hang": wt.fleet.find_hang(rings),
        "fleet monitor": next(wt.fleet.monitor_run(rings)),
        "fleet incidents": wt.runs.fleet_run(kept),
        "fleet replay": wt.runs.replay_fleet(kept),
        "fleet replay JOB": wt.runs.replay_job(job, 0.004),
        "fleet diagnose --plan": wt.runs.expected_options(wt.load_cluster("h100-ib")),
        "fleet dashboard": wt.fleet.grafana_dashboard(),
        "fleet jobset": wt.fleet.jobset_text(wt.fleet.JobSetRequest("llama", "registry/train:1", 2, ("python", "train.py"))),
        "measure list": wt.measure.list_cells(folder),
        "fleet checkpoints ls": wt.fleet.steps_in(folder),
    }


def measure(job: wt.Job, out: Path) -> None:
    """Needs PyTorch: measures layers, then the first kernels of the job's plan."""
    outcome = wt.profile.run(job, out, settings=wt.profile.RunSettings(layers=(1, 2)), budget=60.0)
    assert outcome.rows > 0
    wt.profile.sweep(wt.profile.plan(job)[:10], out.with_name("kernels.parquet"), device="cpu")
    wt.measure.plan("examples/jobs/tiny-llama.toml", budget="60s", out=out.parent)
    assert (
        wt.measure.run(out.parent).rows and wt.measure.check(out.parent).held_out and wt.measure.use(out.parent, anyway=True).jobs
    )
    assert len(wt.measure.from_trace("trace.json", out=out.with_name("traced.parquet"), gpu="h100-sxm-80gb"))
    model: wt.Imported = wt.import_torch("net.py:build", inputs=["8x3x224x224"])
    wt.load(model, on="h100-ib")


def fit_catalogue(folder: Path) -> list[object]:
    """Refits constants of the catalogue: minutes."""
    records = [wt.fit.collectives(), wt.fit.training("hopper")[1], wt.fit.host()[1]]
    assert wt.read_measured(folder).engines and wt.fit.engines(folder)
    assert not wt.fit.forward(folder, systems=["h100_sxm"]).gpus  # no recurrence among so few rows
    return [record.constants for record in records] + [fit.messages for fit in wt.fit.published(folder)]


def operate(folder: Path, job: wt.Job) -> None:
    """What a job's operator calls."""
    for result in wt.fleet.run_node_tests(["memory-copy"], wt.runs.expected_options(job.cluster)):
        print(result["passed"])
    for alarms in wt.fleet.monitor_run(folder, against=wt.runs.Expectation(job)):
        print([alarm.text for alarm in alarms])
    comparison = wt.runs.compare_fleet(folder, job, last=50)
    print(comparison.as_dict()["causes"])
    print(wt.fleet.verify_steps(folder), wt.fleet.delete_steps(folder, torn=True))
    wt.fleet.export_weights(folder / "step-00000100", folder / "weights.safetensors")
    wt.fleet.NodeShipper(folder, "http://127.0.0.1:8470", wt.fleet.ShipPolicy(interval=1.0)).run()
    wt.fleet.serve(folder, policy=wt.fleet.CollectPolicy())
    print(wt.connect("http://127.0.0.1:8480", token="…").predict(job, artefacts=["html"]).url)


def train(dataset: list[int], state: dict[str, object]) -> None:
    """What a training script calls; needs PyTorch."""
    wt.fleet.watch.start()
    loader = wt.fleet.SharedLoader(dataset, 8, address="job", seed=1)
    with wt.fleet.Checkpointer("checkpoints", keep=3) as checkpointer:
        first = checkpointer.load(state) or 0
        for step, _ in enumerate(loader, first + 1):
            checkpointer.save(step, state)
    store = wt.fleet.open_store("tcp", wt.fleet.StorePlace("127.0.0.1", 29400, 0, 1))
    wt.fleet.init_mesh(("dp",), (1,), store=store, rank=0)
    print(wt.fleet.open_run("run1").summaries())
