"""Logs of trainers from tables of line forms, and of trainers that nobody wrote a reader for: ten drawn siblings of each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.logs import unknown
from windtunnel.formats.logs.rl_steps import read_rl_steps
from windtunnel.formats.logs.verl import read_steps
from windtunnel.formats.reading import Reading

GIB = 2.0**30
SIBLINGS = range(10)
HEADS = ("", "2025-05-21T03:50:19.029644300Z ", "(TaskRunner pid=16292) ", "\x1b[36m(main pid=7)\x1b[0m ", "[rank0]:", "0: ",
         "[default0]:", "trainer-1  | ", "node-3: ", "[1,0]<stdout>:")  # fmt: skip
STAMPS = ("[2025-01-02 10:00:{:02d}] ", "2025-01-02 10:00:{:02d},123 - INFO - ", "2025/01/02 10:00:{:02d} train.py:31] ", "",
          "I0102 10:00:{:02d}.100 123 loop.py:88] ", "2025-01-02T10:00:{:02d}Z INFO trainer ")  # fmt: skip


def _read(folder: Path, lines: list[str], name: str = "train.log") -> Reading:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_files([path])


def _torchtune(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [
        f"Step {step} | loss:{loss} lr:2e-05 tokens_per_second_per_gpu:{rate} peak_memory_active:{gib} peak_memory_alloc:{gib} "
    ]


def _prime(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"02:40:52 SUCCESS Step {step} | Time: {t:.2f}s | Loss: {loss:.4f} | Entropy: 0.4 | Grad. Norm: 2.0 | LR: 1.00e-06 | "
            f"Throughput: {rate * 8:.0f} tokens/s | MFU: 1.0% | Peak Mem.: {gib:.1f}/79.1 GiB (21.4%)"]  # fmt: skip


def _automodel(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"| INFO | root | step {step} | epoch 0 | loss {loss:.4f} | grad_norm 1.5 | lr 1.00e-05 | mem {gib:.2f} GiB | "
            f"tps {rate * 8:.2f}({rate:.2f}/gpu) | num_label_tokens 21541"]  # fmt: skip


def _colossal(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return ["                    INFO     colossalai - colossalai - INFO:        ",
            f"                    INFO     colossalai - colossalai - INFO: Step time: {t}  "]  # fmt: skip


def _olmo(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"jupiter:0\tolmo_core.train\tINFO\t[step={step}/6000,epoch=1,eta=9:31:10]", f"    train/CE loss={loss:.3f}",
            f"    throughput/device/TPS={rate:,.0f}", f"    throughput/device/BPS={1 / t:.6f}",
            f"    system/GPU active mem (GiB)={gib}"]  # fmt: skip


def _xtuner(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"[XTuner][RANK 0][INFO] Epoch 1 Step {step}/500 data_time: 0.0021 lr: 0.000010 time: {t:.4f} text_tokens: 32768.0 "
            f"total_loss: {loss} max_memory: {gib} GB reserved_memory: 66.10 GB tgs: {rate} e2e_tgs: 1.2"]  # fmt: skip


def _mmengine(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"mmengine - INFO - Iter(train) [{step:>4}/500]  lr: 1.0e-05  eta: 1:20:30  time: {t:.4f}  data_time: 0.01  "
            f"memory: {gib * 1024:.0f}  loss: {loss:.4f}  tokens_per_sec: {rate}"]  # fmt: skip


def _areal(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"20250102-10:00:01.000 StatsLogger INFO: Epoch 1/2 Step {step}/300 Train step {step}/600 done.",
            f"│ timeperf/rollout │  {0.75 * t:.6e} │ ppo_actor/update/actor_loss/avg │ {loss:.4e} │",
            f"│ timeperf/train_step │  {0.25 * t:.6e} │ n_seqs │ 1.0000e+02 │"]  # fmt: skip


def _skyrl(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    stamp = "2025-08-01 10:00:00.000 | INFO     | skyrl_train.utils.utils:__exit__:122 -"
    return [f"{stamp} Started: 'step'", f"{stamp} Finished: 'generate', time cost: {0.6 * t:.2f}s",
            f"{stamp} Started: 'policy_train'", f"{stamp} Finished: 'policy_train', time cost: {0.3 * t:.2f}s",
            f"{stamp} Finished: 'step', time cost: {t:.2f}s"]  # fmt: skip


def _chat(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"|E2E latency={t:.2f}s |Gather latency=0.00s (0.00%) |Generate time={0.6 * t:.2f}s (60.00%) |Training time="
            f"{0.3 * t:.2f}s (30.00%) |Others={0.1 * t:.2f} (10.00%)|CurSamplesPerSec=13.98 |AvgSamplesPerSec=13.85",
            f"Epoch: 0 | Step: {step} | PPO Epoch: 1 | Actor Loss: {loss} | Critic Loss: 0.1"]  # fmt: skip


def _litgpt(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    micro = [f"Epoch 1 | iter {4 * step + n} step {step - (n < 3)} | loss train: {loss:.3f}, val: n/a | iter time: {250 * t:.2f} ms"
             for n in range(4)]  # fmt: skip
    return [*micro[:3], f"{micro[3]} (step)"]


def _metric_logger(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"[07:15:39.400163] Epoch: [2]  [{step:>4}/1504]  eta: 0:01:00  lr: 0.000005 loss: {loss:.4f} (0.8558)  time: {t:.4f}  "
            f"data: 0.0001  max mem: {gib * 1024:.0f}"]  # fmt: skip


def _imagenet(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    return [f"Epoch: [11][{step:>4}/4800]\tTime {t:6.3f} (  1.206)\tData  0.002 (  0.004)\tLoss {loss:.4e} (3.7e+01)\tAcc@1  1.0"]


def _keras(step: int, t: float, loss: float, rate: float, gib: float) -> list[str]:
    begin = "[==============================]" if step % 2 else "━━━━━━━━━━━━━━━━━━━━" if step % 3 else "-"
    return [f"Epoch {step}/50", f"1490/1490 {begin} 106s {1e3 * t:.0f}ms/step - accuracy: 0.9 - loss: {loss:.4f} - val_loss: 7.1"]


FORMS: dict[str, tuple[Callable[[int, float, float, float, float], list[str]], set[str]]] = {
    "torchtune": (_torchtune, {"loss", "memory", "own"}),
    "prime-rl": (_prime, {"seconds", "loss", "memory", "tokens"}),
    "NeMo Automodel": (_automodel, {"loss", "memory", "own"}),
    "ColossalAI": (_colossal, {"seconds", "counted"}),
    "OLMo-core": (_olmo, {"seconds", "loss", "memory", "own"}),
    "XTuner": (_xtuner, {"seconds", "loss", "memory", "own"}),
    "MMEngine": (_mmengine, {"seconds", "loss", "memory", "own"}),
    "AReaL": (_areal, {"seconds", "loss"}),
    "SkyRL": (_skyrl, {"seconds", "counted"}),
    "DeepSpeed-Chat": (_chat, {"seconds", "counted"}),
    "LitGPT": (_litgpt, {"seconds", "loss"}),
    "MetricLogger": (_metric_logger, {"seconds", "loss", "memory"}),
    "PyTorch's ImageNet example": (_imagenet, {"seconds", "loss"}),
    "Keras": (_keras, {"seconds", "loss", "counted"}),
}


@pytest.mark.parametrize("seed", SIBLINGS)
@pytest.mark.parametrize("name", FORMS)
def test_a_line_form_is_read(name: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{name} {seed}")
    lines_of, says = FORMS[name]
    head, gib, stride = draw.choice(HEADS), draw.randrange(20, 75), draw.choice([1, 5, 10])
    steps = [draw.randrange(2, 50) + stride * number for number in range(draw.randrange(2, 5))]
    steps = [steps[0] + stride * number for number in range(len(steps))]
    times = [round(draw.uniform(0.5, 40.0), 2) for _ in steps]
    losses, rate = [round(draw.uniform(0.5, 9.0), 3) for _ in steps], draw.randrange(800, 9000)
    printed = [
        head + line for step, t, loss in zip(steps, times, losses, strict=True) for line in lines_of(step, t, loss, rate, gib)
    ]
    reading = _read(tmp_path, [head + "Loading the checkpoint", *printed])
    assert (reading.format, reading.facts["framework"]) == ("training-log", name)
    found = reading.value.steps
    assert list(found.step) == (list(range(1, len(steps) + 1)) if "counted" in says else steps)
    if "seconds" in says:
        assert np.allclose(found.seconds, times, rtol=1e-3)
    if "loss" in says:
        assert np.allclose(found.loss, losses, atol=1e-3)
    if "memory" in says:
        assert np.allclose(found.memory, gib * GIB, rtol=1e-3)
    if "own" in says:
        assert reading.facts["figures"]["tokens_per_second_per_gpu"] == pytest.approx(rate, rel=1e-3)
    if "tokens" in says:
        assert np.allclose(found.tokens, np.array(times) * rate * 8, rtol=1e-3)


@pytest.mark.parametrize("nan", ["nan", "NAN", "NaN"])
def test_what_goes_wrong_with_a_loss_is_told_with_its_step(nan: str, tmp_path: Path) -> None:
    line = (
        " iteration {0:8}/ 900 | consumed samples: {0} | elapsed time per iteration (ms): 1000.0 | global batch size: 8 | "
        "lm loss: {1} | grad norm: {2} | number of skipped iterations: {3} | number of nan iterations: 0 |"
    )
    values = [("2.1", "1.0", 0)] * 30 + [("9.8", "1.0", 0)] + [("2.1", "1.0", 0)] * 8 + [(nan, nan, 1)] * 2
    lines = [line.format(100 + number, *value) for number, value in enumerate(values)]
    faults = _read(tmp_path, [*lines, "valid loss at iteration 900 | lm loss value: nan"]).facts["training_faults"]
    assert faults == [
        "the loss is NaN from step 139 on",
        "the gradient norm is NaN from step 139 on",
        "the loss has a spike: 9.8, where 2.1 is usual (step 130)",
        "2 skipped iterations",
    ]
    assert "training_faults" not in _read(tmp_path, lines[:30]).facts


def test_the_clock_gives_what_lines_do_not_say(tmp_path: Path) -> None:
    rows = [f"2026-08-10 23:59:{50 + 3 * number:02d} " + _automodel(9 + number, 0, 0.7, 1400, 24)[0] for number in range(3)]
    reading = _read(tmp_path, rows)
    assert list(reading.value.steps.seconds[1:]) == [3.0, 3.0] and reading.value.steps.tokens[1] == pytest.approx(1400 * 8 * 3)
    assert reading.facts["args"]["world_size"] == 8 and any("between lines" in note for note in reading.assumed)
    old = [f"{hour} [INFO] [TRAIN] [Rank 0] step: {step}, loss: 975.9, tokens_per_second: 76857.79, mfu: 42.41"
           for step, hour in ((7, "23:59:58"), (8, "00:00:01"))]  # fmt: skip
    reading = _read(tmp_path, old)
    assert reading.value.steps.seconds[1] == 3.0 and reading.facts["tokens_per_second"] == pytest.approx(76857.79)


def test_memory_of_dicts_without_times_is_kept(tmp_path: Path) -> None:
    lines = [repr({"loss": 4.7, "memory/max_mem_active(gib)": 34.89, "memory/max_mem_allocated(gib)": 34.89,
                   "memory/device_mem_reserved(gib)": reserved, "epoch": 1.0}) for reserved in (30.22, 41.26, 41.26)]  # fmt: skip
    reading = _read(tmp_path, lines)
    assert reading.facts["peak_memory_bytes"] == pytest.approx(34.89 * GIB)
    assert reading.facts["figures"]["memory_reserved_bytes"] == pytest.approx(41.26 * GIB)


def test_roll_prints_a_table_a_step(tmp_path: Path) -> None:
    rows = [json.dumps({"time/step_total": 60.0, "time/step_generate": 40.0, "time/step_train": 15.0, "system/step": step})
            for step in (3, 4)]  # fmt: skip
    reading = _read(tmp_path, ["[INFO] [rlvr_pipeline.py (410)] " + row for row in rows])
    assert list(reading.value.steps.step) == [3, 4] and list(reading.value.steps.seconds) == [60.0, 60.0]
    assert reading.facts["figures"]["time/step_generate"] == 40.0


VERL = {"actor/pg_loss": 0.5, "response_length/mean": 880.2, "timing_s/gen": 541.18, "timing_s/adv": 0.036577,
        "timing_s/update_actor": 472.1, "timing_s/step": 1163.9}  # fmt: skip


def _whole(head: str, draw: random.Random) -> list[str]:
    return [head + "step:3 - " + " - ".join(f"{name}:{value}" for name, value in VERL.items())]


def _listed(head: str, draw: random.Random) -> list[str]:
    mark = draw.choice(["- ", "-  ", "* ", "• ", "  ", ""])
    return [f"{mark}{name}:{' ' * draw.choice([0, 1, 11])}{value}" for name, value in VERL.items()]


def _aligned(head: str, draw: random.Random) -> list[str]:
    return [f"{name + ':':<24} {value:>10}{draw.choice(['', '   (72%)'])}" for name, value in VERL.items()]


def _cut(head: str, draw: random.Random) -> list[str]:
    (text,), width = _whole(head, draw), draw.randrange(45, 100)
    return [text[start : start + width] for start in range(0, len(text), width)]


def _wrapped(head: str, draw: random.Random) -> list[str]:
    parts = _whole(head, draw)[0].split(" - ")
    cut = draw.randrange(1, len(parts))
    return [" - ".join(parts[:cut]), "- " + " - ".join(parts[cut:])]


@pytest.mark.parametrize("seed", SIBLINGS)
@pytest.mark.parametrize("form", [_whole, _listed, _aligned, _cut, _wrapped])
def test_verl_is_read_as_people_paste_it(form: Callable[[str, random.Random], list[str]], seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{form.__name__} {seed}")
    lines = form(draw.choice(["", "(TaskRunner pid=1) "]), draw)
    said = read_steps("\n".join(lines))
    assert said["timing_s/gen"] == 541.18 and said["response_length/mean"] == 880.2
    reading = _read(tmp_path, [*lines, "Training Progress:  11%|█         | 3/27 [1:00:00<9:00:00, 1163.90s/it]"])
    assert reading.facts["framework"] == "verl" and list(reading.value.steps.seconds) == [1163.9]
    assert reading.facts["figures"]["timing_s/update_actor"] == 472.1
    assert reading.facts["figures"]["timing_s/adv"] == pytest.approx(0.036577)


STEP = ("step", "iter", "iteration", "global_step", "train step", "it")
TIME = (("dt", "ms", 1e3), ("step_time", "s", 1.0), ("time per iteration", " sec", 1.0), ("iter_time_ms", "", 1e3),
        ("time/step", " s", 1.0),
        ("", " s/it", 1.0), ("step time", " seconds", 1.0))  # fmt: skip
LOSS = ("loss", "train_loss", "lm_loss", "train/loss", "ce_loss")
RATE = (("tok/s", ""), ("tokens_per_sec", ""), ("throughput", " tokens/s"), ("tps", ""), ("", " tok/s"))
MEMORY = (("mem", "GiB", 1.0), ("peak_mem", " GB", 1.0), ("memory", " MB", 1024.0), ("gpu_mem_gb", "", 1.0),
          ("max_memory_allocated", " MiB", 1024.0))  # fmt: skip


def _number(value: float, draw: random.Random) -> str:
    if value >= 1e4:
        return draw.choice([f"{value:.0f}", f"{value:,.0f}", f"{value / 1e3:.3f}k"])
    return f"{value:.4f}"


def _line(style: str, pairs: list[tuple[str, str, str]]) -> str:
    if style == "dict":
        return "{" + ", ".join(f"'{name}': {value}" for name, value, _ in pairs) + "}"
    if style == "json":
        return "{" + ", ".join(f'"{name}": {value}' for name, value, _ in pairs) + "}"
    between, apart = {
        "colon": (": ", " | "),
        "equal": ("=", " "),
        "bar": (" ", " | "),
        "comma": (": ", ", "),
        "dash": (": ", " - "),
    }[style]
    return apart.join(f"{name}{between if name else ''}{value}{unit}" for name, value, unit in pairs)


@pytest.mark.parametrize("seed", range(60))
def test_a_trainer_that_nobody_knows_is_read(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    style = draw.choice(["colon", "equal", "bar", "comma", "dash", "dict", "json"])
    named = style in ("dict", "json", "equal")
    time = draw.choice([one for one in TIME if one[0] and not one[1]] if named else TIME)
    memory = draw.choice([one for one in MEMORY if not one[1]] if named else MEMORY)
    rate = draw.choice([one for one in RATE if one[0] and not one[1]] if named else RATE)
    step, loss = (draw.choice([one for one in names if not named or " " not in one]) for names in (STEP, LOSS))
    head, stamp, of = draw.choice(HEADS), "" if named and style != "equal" else draw.choice(STAMPS), draw.choice(["", "/5000"])
    rows, numbers = [], [7, 8, 9, 10]
    for number in numbers:
        pairs = [(step, str(number) + ("" if named else of), ""), (loss, f"{9.5 - 0.1 * number:.4f}", ""),
                 (time[0], f"{1.25 * time[2]:.2f}", time[1]), (rate[0], _number(52_000, draw) if not named else "52000", rate[1]),
                 (memory[0], f"{61.5 * memory[2]:.2f}", memory[1])]  # fmt: skip
        rows.append(head + stamp.format(number) + _line(style, pairs))
    reading = _read(tmp_path, [head + "building the model", *rows, head + "saving a checkpoint"])
    assert (reading.format, reading.facts["framework"]) == ("unknown-log", "an unknown trainer"), rows[0]
    found = reading.value.steps
    assert list(found.step) == numbers, rows[0]
    assert np.allclose(found.seconds, 1.25) and np.allclose(found.tokens, 65_000) and np.allclose(found.memory, 61.5 * GIB), rows[0]
    assert np.allclose(found.loss, [9.5 - 0.1 * number for number in numbers]), rows[0]


@pytest.mark.parametrize("head", ["step", "Step", "Iteration", "global_step", "iter", "node-3: step", "worker0: Step"])
def test_a_first_column_of_steps_is_no_host(head: str, tmp_path: Path) -> None:
    found = _read(tmp_path, [f"{head}: {step} | loss: 2.5 | step_time: 1.5" for step in (7, 8, 9, 10)])
    assert list(found.value.steps.step) == [7, 8, 9, 10]


@pytest.mark.parametrize("group", ["", "train/", "perf/", "metrics/train/", "trainer/"])
@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [("step_time", "1.5", 1.5), ("iter_time_ms", "340.5", 0.3405), ("batch_time", "0.75s", 0.75), ("s/it", "2.5", 2.5),
     ("iteration_time", "340ms", 0.34), ("it/s", "4", 0.25)],
)  # fmt: skip
def test_names_may_stand_in_groups(group: str, name: str, value: str, seconds: float, tmp_path: Path) -> None:
    lines = [f"{group}step: {step} | {group}loss: 2.5 | {group}{name}: {value} | {group}tokens/sec/gpu: 4500" for step in (7, 8, 9)]
    found = _read(tmp_path, lines)
    assert list(found.value.steps.step) == [7, 8, 9]
    assert np.allclose(found.value.steps.seconds, seconds) and np.allclose(found.value.steps.loss, 2.5)
    assert found.facts["figures"]["tokens_per_second_per_gpu"] == 4500


@pytest.mark.parametrize("seed", SIBLINGS)
def test_a_table_of_steps_is_read(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    apart, name = draw.choice([(",", "m.csv"), (" | ", "m.txt"), ("\t", "m.tsv"), ("    ", "m.log")])
    columns = [draw.choice(["step", "iteration"]), draw.choice(["loss", "train_loss"]), draw.choice(["step_time", "time(s)", "dt"])]
    rows = [[str(number), f"{2.5:.2f}", f"{0.75:.2f}"] for number in (10, 20, 30)]
    found = _read(tmp_path, [apart.join(row) for row in (columns, *rows)], name).value.steps
    assert list(found.step) == [10, 20, 30] and np.allclose(found.seconds, 0.75) and np.allclose(found.loss, 2.5)


def test_a_time_that_only_grows_is_that_since_the_start(tmp_path: Path) -> None:
    reading = _read(tmp_path, [f"train step: {step} elapsed: {2.0 * step:.1f}s loss: 3.0" for step in (5, 6, 8)])
    assert list(reading.value.steps.seconds[1:]) == [2.0, 2.0] and any("grows" in note for note in reading.assumed)


FALSE = {
    "a recipe": "Step {n}: {word} the batter, time: {m} min",
    "prose": "In step {n} we {word} the loss to {m}.5 within {m} s and {word} again.",
    "a web server": 'INFO: 127.0.0.1:{n} - "GET /{word} HTTP/1.1" 200 {m}ms',
    "an engine": "INFO 01-01 10:00:{m:02d} metrics.py:1] Avg prompt throughput: {n}.0 tokens/s, Running: {m} reqs, Waiting: 0 reqs",
    "NCCL": "node1:12{n}:13{m} [0] NCCL INFO Channel 0{m}/0 : {n}[0] -> {m}[1] via P2P/IPC",
    "code": "for step in range({n}): {word} = model(batch, {m})",
    "settings": "{word}_{n}: {m}",
    "docker": "Step {n}/20 : RUN {word} --time {m}",
    "a scheduler": "slurmstepd: error: *** STEP {m}{n}.0 ON {word} CANCELLED ***",
    "an evaluation": "val step {n} loss 2.{m} time 1.{m} s",
    "flags": "--train-iters {n} --log-interval {m} --lr 1e-{m}",
    "memory alone": "allocated memory {n}.{m} GiB, reserved {m}.5 GiB",
    "downloads": "Downloading shard {n}: {m}.5 MB/s, time 0{m}:10",
}


@pytest.mark.parametrize("seed", SIBLINGS)
@pytest.mark.parametrize("kind", FALSE)
def test_what_is_no_log_of_steps_is_not_read_as_one(kind: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{kind} {seed}")
    words = ["lower", "beat", "mix", "install", "check", "n1", "x", "y"]
    rows = []
    for number in range(1, 12):
        line = FALSE[kind].format(n=number, m=draw.randrange(1, 9), word=draw.choice(words))
        rows.append(draw.choice(HEADS[:1] if seed % 2 else HEADS) + line)
    path = tmp_path / draw.choice(["a.log", "a.txt", "a.md"])
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert not unknown.recognises(head_of(path))


@pytest.mark.parametrize("source", ["docs/import.md", "docs/runs.md", "src/windtunnel/formats/logs/unknown.py", "docs/training.md"])
def test_documents_and_code_are_no_logs(source: str) -> None:
    path = Path(__file__).parents[2] / source
    if path.is_file():
        assert not unknown.recognises(head_of(path))


def test_one_line_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError):
        _read(tmp_path, ["begin", "step 3 | loss 2.1 | dt 120 ms | tok/s 12000", "end"])


@pytest.mark.parametrize(
    ("lines", "tool"),
    [
        (["INFO:torchtune.utils.logging:Running FullFinetuneRecipe with resolved config:", "batch_size: 4"], "torchtune"),
        (["[08/30/23 07:07:34] INFO     colossalai - colossalai - INFO: launched"], "ColossalAI"),
        (["[2025-01-01 10:00:00,100] [INFO] [runner.py:610:main] cmd = python train.py"], "DeepSpeed"),
        (["[INFO:swift] Loading the model", "[INFO:swift] Successfully loaded"], "ms-swift"),
        (["(raylet, ip=10.0.0.4) starting worker", "2025-01-01 10:00:00 INFO worker.py:1 -- Started a local Ray instance."], "Ray"),
    ],
)
def test_a_log_that_is_not_read_names_the_tool_that_it_looks_like(lines: list[str], tool: str, tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError) as error:
        _read(tmp_path, lines)
    assert tool in str(error.value).partition("allowed")[0] and "num-layers" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "phases"),
    [
        (_areal(3, 40.0, 0.1, 0, 0), {"timing_s/step": 40.0, "timing_s/gen": 30.0, "timing_s/update_actor": 10.0}),
        ([repr({"loss": 0.1, "completions/mean_length": 412.0, "step_time": 37.0})],
         {"timing_s/step": 37.0, "response_length/mean": 412.0}),
        (["perf 3: {'perf/step_time': 96.0, 'perf/rollout_time': 50.0, 'perf/actor_train_time': 30.0}"],
         {"timing_s/step": 96.0, "timing_s/gen": 50.0, "timing_s/update_actor": 30.0}),
        (_skyrl(3, 40.0, 0.1, 0, 0), {"timing_s/step": 40.0, "timing_s/gen": 24.0, "timing_s/update_actor": 12.0}),
        (_chat(3, 40.0, 0.1, 0, 0), {"timing_s/step": 40.0, "timing_s/gen": 24.0, "timing_s/update_actor": 12.0}),
        (["no log of steps"], {}),
    ],
)  # fmt: skip
def test_phases_of_any_trainer_of_reinforcement_learning(lines: list[str], phases: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_rl_steps(path, path.read_text(encoding="utf-8")) == pytest.approx(phases)
