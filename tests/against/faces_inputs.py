"""The files that commands of faces.toml read: the examples, what windtunnel exports of small jobs, records of watched runs, and
short files of other tools. Written once, by this tree; both sides read the same."""

from __future__ import annotations

import io
import json
import shutil
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from .environment import ROOT

JOB = "llama3-8b-8xh100"
SMALL = ["model.layers=2", "plan.seq=512"]
NCCL_TESTS = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{ranks}#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1   100.00   10.49   19.66      0   110.00    9.53   17.87      0
     4194304       1048576     float     sum      -1   160.00   26.21   49.15      0   170.00   24.67   46.26      0
"""
TEXTS: dict[str, str] = {
    "named.toml": f'base = "{JOB}"\nname = "<b>named & shown</b>"\n',
    "rl.toml": """workload = "rl"
name = "small"
model = "qwen2.5-1.5b"

[cluster]
base = "h100-ib"
gpus = 16

[rl]
prompts = 32
samples = 4
mini_batch = 16
prompt = "100-300"
response = "300~0.8<1024"

[rl.rollout]
tp = 1
""",
    "flows.csv": "src,dst,bytes,start_s\n0,5,1000000,0\n1,5,2000000,0.00001\n2,7,500000,0\n",
    "kernels.csv": "op,m,n,k,dtype,phase,time_us\ngemm,4096,8192,4096,bf16,forward,400\nnorm,4096,8192,,bf16,forward,60\n",
    "trace.goal": "num_ranks 2\nrank 0 {\nl1: calc 500\nl2: send 8b to 1 tag 1\nl2 requires l1\n}\n"
    "rank 1 {\nl1: recv 8b from 0 tag 1\n}\n",
    "megatron.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 32 --bf16 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --vocab-size 50257\n",
    "requests.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2024-05-10 00:00:{second:02d}.0000000,{300 + 37 * second},{40 + second}\n" for second in range(0, 40, 2)
    ),
    "topology.conf": "SwitchName=leaf0 Nodes=node[0-3]\nSwitchName=leaf1 Nodes=node[4-7]\nSwitchName=spine Switches=leaf[0-1]\n",
    "smi-topo.txt": "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPIX\t0-47\t0\n"
    "GPU1\tNV18\t X \tSYS\t0-47\t0\n"
    "NIC0\tPIX\tSYS\t X \n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n",
    "smi-dmon.txt": "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk\n"
    "# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz\n"
    + "".join(f"    {gpu}    {600 + gpu}     60  70  99  50  0      0  0  0  2619  1700\n" for gpu in range(8)),
    "oom.log": "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
    "79.15 GiB of which 1.06 GiB is free. Process 1 has 78.08 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
    "PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.\n",
    "sacct.txt": "JobID|JobName|State|Start|End|NNodes|ElapsedRaw|NodeList\n"
    "1|train|NODE_FAIL|2025-01-01T00:00:00|2025-01-01T05:00:00|4|18000|"
    "node[0-3]\n2|train|COMPLETED|2025-01-01T05:10:00|2025-01-02T05:10:00|4|86400|node[0-3]\n",
    "half.toml": 'base = "llama3-8b-8x',
    "unknown.toml": f'base = "{JOB}"\nmodell = "gpt3-175b"\n',
    "empty.json": "",
    "list.json": "[1, 2, 3]",
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """All of them in `folder`; `written` is there when they are whole."""
    sys.path.insert(0, str(ROOT))  # helpers of the tests
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "output"))
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    _exports(folder)
    _logs(folder)
    _watched(folder)
    (folder / "written").touch()


def _exports(folder: Path) -> None:
    import windtunnel as wt
    from tests.helpers.fit_rows import CPU, product, tiny_cpu
    from tests.synthetic_runs import with_known_factor
    from windtunnel.records import dataset, write
    from windtunnel.records.run_file import write_run

    small = wt.load(JOB, SMALL)
    large = wt.load(JOB, ["cluster.gpus=64", "plan.global_batch=64"])
    stages = wt.load(JOB, [*SMALL, "plan.pp=2", "plan.micro_batch=1"])
    for job, form, name in (
        (small, "kineto", "trace.json"), (stages, "kineto", "traces"), (small, "chakra", "chakra"), (small, "goal", "step.goal"),
        (small, "simai", "workload.txt"), (small, "simai-topology", "simai-topology"), (large, "graph", "graph.toml"),
        (small, "nccl-topology", "topology.xml"), (small, "nccl-graph", "nccl-graph.xml"), (small, "megatron", "exported.sh"),
        (small, "torchtitan", "torchtitan.toml"), (small, "deepspeed", "deepspeed.json"), (small, "json", "job.json"),
    ):  # fmt: skip
        wt.export(job, form).save(folder / name)
    wt.export(small.cluster, "astra-sim").save(folder / "astra")
    (folder / "job.toml").write_text(wt.dump(small), encoding="utf-8")
    write_run(with_known_factor(small, "kernels.attention", 1.4), folder / "run")
    write(tiny_cpu(), folder / "products.parquet")
    rows = [product(m, 1024, 1024, m * 1.5e-5 * (0.6 if mode == "cuda_graph" else 1.0), mode=mode) for m in (256, 1024)
            for mode in ("eager", "cuda_graph")]  # fmt: skip
    write(dataset(CPU, rows), folder / "modes.parquet")
    with chdir(folder):  # so that no file of theirs names the folder
        _do("profile", "import", "kernels.csv", "--gpu", "h100-sxm-80gb", "-o", "kernels.parquet", "-q")
        _do("calibrate", "run", "--job", "job.toml", "-o", "calibration.toml")


def _do(*words: str) -> None:
    from windtunnel.cli import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(words) == 0, words


def _logs(folder: Path) -> None:
    from tests.browser.verb_pages import LINE

    steps = "".join(LINE.format(step, 1100.0 + 3.0 * (step % 7) + (300.0 if step > 120 else 0.0)) for step in range(1, 201))
    (folder / "run.log").write_text(steps, encoding="utf-8")
    table = ROOT / "src" / "windtunnel" / "catalog" / "measurements" / "single_node.csv"
    (folder / "rows.csv").write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:6]), encoding="utf-8")
    table = table.with_name("collectives.csv")
    (folder / "collectives.csv").write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:40]), "utf-8")
    rank_line = "#  Rank {:2d} Group  0 Pid {} on node{} device  {} [0x00] NVIDIA H100\n"
    ranks = "".join(rank_line.format(rank, rank + 100, rank // 8, rank % 8) for rank in range(16))
    (folder / "nccl-tests.log").write_text(NCCL_TESTS.format(ranks=ranks), encoding="utf-8")
    (folder / "dumps").mkdir()
    for rank in range(4):
        entry = {
            "record_id": 0, "process_group": ["dp", "DP"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce",
            "state": "scheduled", "is_p2p": False, "time_created_ns": 1_000_000_000,
        }  # fmt: skip
        dump = {
            "version": "2.9", "pg_config": {"dp": {"desc": "", "ranks": "[0, 1, 2, 3]"}}, "entries": [entry] if rank != 2 else [],
            "pg_status": {"dp": {"last_enqueued_collective": 5 - (rank == 2), "last_completed_collective": 4}},
        }  # fmt: skip
        (folder / "dumps" / f"dump_{rank}").write_text(json.dumps(dump), encoding="utf-8")


def _watched(folder: Path) -> None:
    from tests.helpers.fleet_rings import written
    from tests.helpers.kept_run import kept
    from tests.unit.test_fleet_checkpoint_commit import committed

    for name in ("slow", "usual", "stuck", "kept", "checkpoints"):
        (folder / "fleet" / name).mkdir(parents=True)
    written(folder / "fleet" / "slow", loading=6)
    written(folder / "fleet" / "usual", slow=-1)
    written(folder / "fleet" / "stuck", stuck=3)
    kept(folder / "fleet" / "kept")
    committed(folder / "fleet" / "checkpoints", 10, 20, 30)
    torn = folder / "fleet" / "torn"
    shutil.copytree(folder / "fleet" / "checkpoints", torn)
    path = torn / "step-00000020" / "__1_0.distcp"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
