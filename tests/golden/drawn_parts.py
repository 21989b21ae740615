"""Parts of answers on drawn inputs whose numbers are watched: allocators, files of sends, layers of stages, counts of every model,
profiles. Each takes some hundredths of a second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from folding import digest
from varied import or_refused, unit

import windtunnel as wt
from windtunnel.base.comm import Comm

ALLOCATORS = ("", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4",
              "garbage_collection_threshold:0.6", "expandable_segments:True,roundup_power2_divisions:8",
              "max_split_size_mb:32,garbage_collection_threshold:0.5",
              "roundup_power2_divisions:3", "max_split_size_mb:20", "garbage_collection_threshold:1.5",
              "backend:other")  # fmt: skip


def _allocated(text: str, limit: float) -> Any:
    """Drawn requests and frees on two streams of an allocator with little room."""
    from windtunnel.memory.allocator import CachingAllocator, OutOfMemory, settings_of

    notes: list[Any] = []
    pool = CachingAllocator(settings_of(text), limit, lambda *told: notes.append([len(told[0]), *told[1:]]))
    draw, live, answers = np.random.default_rng(len(text)), [], []
    for turn in range(400):
        if live and draw.random() < 0.47:
            block = live.pop(int(draw.integers(len(live))))
            if turn % 9 == 0:
                pool.record_stream(block, 1)
            pool.free(block)
        else:
            size = float(2.0 ** draw.uniform(4, 27))
            try:
                live.append(pool.malloc(size, int(draw.random() < 0.2)))
                answers.append([live[-1].address, live[-1].size])
            except OutOfMemory as lack:
                answers.append([turn, lack.size, lack.reserved])
        if turn % 40 == 39:
            pool.caught_up(1)
        if turn % 150 == 149:
            pool.empty_cache()
    numbers = [value for value in vars(pool).values() if isinstance(value, (int, float))]
    return digest([answers, numbers, notes])


SENDS = (
    ("a.csv", "# size=8192\nsrc,dst,bytes,after,channel\n0,1,4096,,0\n1,2,4096,0,1\n2,0,2048,1 0,0\n"),
    ("b.csv", "src,dst,bytes,step,delay_s,rate,begin_s\n0,1,4096,0,1e-6,1e10,0\n1,s0,512,1,,,2e-6\ns0,2,512,2,,inf,\n"),
    ("c.json", '{"size": 3e4, "sends": [{"src": 0, "dst": 3, "bytes": 9}, {"src": 3, "dst": 1, "bytes": 7, "after": [0]}]}'),
    ("d.toml", 'size = 100\n[[sends]]\nsrc = 0\ndst = 1\nbytes = 50\n[[sends]]\nsrc = 1\ndst = 0\nbytes = 60\nstep = 2\n'),
    ("e.json", '[{"src": 0, "dst": 1, "bytes": 9, "after": [1]}, {"src": 1, "dst": 0, "bytes": 7, "after": [0]}]'),
    ("f.json", '[{"src": 0, "dst": 0, "bytes": 9}]'), ("g.json", '[{"src": 0, "dst": 1, "bytes": 9, "after": [4]}]'),
    ("h.csv", "src,dst,bytes\n0,1,0\n"), ("i.csv", "src,dst,bytes\n0,1,5,6\n"), ("j.json", '{"size": -1, "sends": []}'),
    ("k.json", '[{"src": 0, "dst": 1, "bytes": 9}, {"src": 0, "dst": 1, "bytes": 9, "after": [0]}]'),
    ("l.json", '[{"src": 0, "dst": 1, "bytes": 9, "rate": 0.5}]'), ("m.csv", "src,dst,bytes,channel\n0,1,x,2\n"),
)  # fmt: skip


def _program(ranks: int, chunks: int, kinds: tuple[str, ...]) -> str:
    """A ring of MSCCL's with a second block that waits for the first one and sends backwards."""
    text = f'<algo name="x" nchunksperloop="{chunks}" ngpus="{ranks}" coll="allreduce">'
    for gpu in range(ranks):
        ahead, behind = (gpu + 1) % ranks, (gpu - 1) % ranks
        rows = "".join(f'<step s="{at}" type="{kind}" cnt="{1 + at % 2}" depid="-1" deps="-1"/>' for at, kind in enumerate(kinds))
        back = f'<step s="0" type="s" cnt="2" depid="0" deps="{len(kinds) - 1}"/><step s="1" type="r" cnt="2"/>'
        back += '<step s="2" type="nop" cnt="1" depid="0" deps="0"/>'
        text += (f'<gpu id="{gpu}"><tb id="0" send="{ahead}" recv="{behind}" chan="0">{rows}</tb>'
                 f'<tb id="1" send="{behind}" recv="{ahead}" chan="1">{back}</tb></gpu>')  # fmt: skip
    return text + "</algo>"


PROGRAMS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (2, 2, ("s", "rrs", "r")),
    (4, 8, ("s", "rcs", "rrc", "s")),
    (3, 1, ("s", "re", "rrcs", "cpy", "r")),
    (3, 2, ("r", "s")),
)


def _send_files() -> Any:
    from windtunnel.network.fabrics.text_topology import load_file
    from windtunnel.network.lanes.send_files import read_msccl, read_sends

    answers = []
    with tempfile.TemporaryDirectory() as folder:
        programs = [(f"{at}.xml", _program(*one)) for at, one in enumerate(PROGRAMS)]
        for name, text in (*SENDS, *programs):
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            found = or_refused(lambda path=path: read_sends(str(path)))
            answers.append(found if not isinstance(found, list) else [found[0], len(found)])
            if not isinstance(found, list):
                answers += [found.scale(12345.0), found.scale(1.0)]
        answers += [or_refused(lambda text=text: read_msccl(text, "p")) for _, text in programs]
        for text in ("1 1 0\n0\n", "0 0 0\n\n", "1 0 0\n\n", "2 1 1\n1\n0 1 100Gbps 1us 0\n", "2 1 1\n2\n0 1 100Gbps 1us 0\n"):
            (Path(folder) / "t.txt").write_text(text, encoding="utf-8")
            found = or_refused(lambda folder=folder: vars(load_file(str(Path(folder) / "t.txt"))))
            answers.append(found if isinstance(found, dict) else [found[0], len(found)])
    return digest(answers)


def _rooted() -> Any:
    """Gathers and scatters in closed form and over the flow engine, and all-to-alls of few channels."""
    answers = []
    for on, gpus, most in product(("h100-ib", "gb200-nvl72", "dgx-1v"), (6, 16), (1, 2, 8)):
        asked = {"gpus": gpus, "sizes": [4e3, 7e7], "network": "flow", "settings": {"NCCL_MAX_NCHANNELS": most}}
        found = or_refused(lambda on=on, asked=asked: wt.collective(on, "all_to_all", **asked))
        answers.append([row["time_us"] if isinstance(row, dict) else row for row in found])
    for on, op, gpus, per_node in product(
        ("h100-ib", "a100-ib", "mi300x-roce"), ("gather", "scatter", "reduce"), (4, 16), (None, 2)
    ):
        for network in ("closed", "flow"):
            asked = {"gpus": gpus, "per_node": per_node, "sizes": [4e3, 7e6], "network": network}
            found = or_refused(lambda op=op, on=on, asked=asked: wt.collective(on, op, **asked))
            answers.append([[row["time_us"], row["busbw_GBs"]] if isinstance(row, dict) else row for row in found])
    return digest(answers)


GRIDS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x")


def _on_grid(on: str) -> Any:
    """Calls along parts of a machine's dimensions, in closed form, as lanes, and over the flow engine."""
    from windtunnel.network import flat_group
    from windtunnel.network.closed.grid import greatest_grid_rate, grid_call
    from windtunnel.network.lanes.grid_lanes import lanes_on_grid

    answers, cluster = [], wt.load_cluster(on, ["gpus=64"])
    for gpus, comm in product(
        (4, 8, 16, 64), (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV)
    ):

        def asked(gpus: int = gpus, comm: Comm = comm) -> Any:
            group = flat_group(cluster, gpus)
            call = grid_call(cluster, comm, group)
            found = [call.cost(5e3), call.cost(3e7), call.hop, call.rate, len(call.algorithm), len(call.order)]
            lanes = lanes_on_grid(call, 3e6) if call.schedule.stages else ((),)
            return [found, greatest_grid_rate(cluster, comm, group, 3e7), *lanes[:-1], *lanes[-1]]

        answers.append(or_refused(asked))
        name = comm.name.lower()
        rows = or_refused(lambda gpus=gpus, name=name: wt.collective(on, name, gpus=gpus, sizes=[3e5], network="flow"))
        answers.append([row["time_us"] if isinstance(row, dict) else row for row in rows])
    return digest(answers)


def _layouts() -> Any:
    """Layers of stages by every rule, what schedules ask of a plan, and which part sits where."""
    from windtunnel.spec import shapes as room

    answers: list[Any] = []
    for layers, stages in product((3, 7, 16, 30, 61, 126), (1, 2, 4, 8, 16)):
        for greedy, further in product((False, True), repeat=2):
            found = room.uneven(layers, stages, greedy, further)
            answers.append(found and [found[0], len(found[1].split())])
        answers += [found and found[0] for head in (0.0, 1.3, 7.0) for found in [room.by_work(layers, stages, head)]]
    for name, pp, vpp in product(room.SHAPES, (1, 2, 3, 4), (1, 2, 3)):
        shape = room.SHAPES[name]
        answers += [[shape.allows(vpp), shape.copies], shape.places(pp, vpp) if shape.allows(vpp) else 0]
        answers.append(or_refused(lambda name=name, pp=pp, vpp=vpp: room.check_virtual(name, pp, vpp, pp % 2 > 0)))
        for batches in (1, 4, 6, 9):
            answers.append(or_refused(lambda name=name, pp=pp, batches=batches: room.check_batches(name, pp, batches, 2)))
    answers += [room.head_in_layers(wt.load_model(name)) for name in ("llama3-8b", "gpt2", "mixtral-8x7b", "gemma3-4b")]
    return digest(answers)


def _counted(first: int) -> Any:
    """What mixers of every model count of it, for training and for inference engines, and its FLOPs."""
    from windtunnel.spec import names
    from windtunnel.workload import flops
    from windtunnel.workload.mixer import mixer_of

    answers: list[Any] = []
    for name in names("models")[first::4]:
        model = wt.load_model(name)
        lora = wt.load_model({"base": name, "lora": {"rank": 16}}) if model.layers % 2 else model
        answers.append([flops.parameter_count(model), flops.active_parameters(model), flops.vision_parameters(model)])
        answers.append([flops.adapter_parameters(lora), flops.adapter_parameters_used(lora)])
        for kind in dict.fromkeys(model.kinds):
            mixer, seen = mixer_of(kind.mixer), model.seen_in(kind)
            answers.append(
                [mixer.recurrence_in(seen), mixer.matrices(seen), mixer.small_parameters(seen), mixer.reads_norm_once(seen)]
            )
            answers += [mixer.score_flops(seen, 3, 5000, kind.local, causal) for causal in (False, True)]
            answers += [mixer.adapter_sides(seen, apart) for apart in (False, True)]
            mixing = mixer.mixing(model, 2, kind.local)
            answers += [mixing, mixing.seen_pairs(5e6, 3000), mixing.read_tokens(1e5, 7.0), mixing.keeps_all, mixing.most]
    return digest(answers)


def _profiled(first: int) -> Any:
    """Jobs with kernels and modules that were measured: some of their own rows at other times, beside and between what they ask."""
    from tests.wide_jobs import drawn_job

    rows_of, own, answers = unit("measured_rows"), unit("test_predict_profile"), []
    for number in range(first, first + 6):

        def asked(number: int = number) -> Any:
            from windtunnel.workload import build

            job, draw = drawn_job(number + 300, ("runtime.precision=bf16",)), np.random.default_rng(number)
            rows = [row for row in rows_of.as_measured(build(job).ops, job) if draw.random() < 0.8]
            for row in rows:
                row["seconds"] *= 1.5 + float(draw.random())
                if draw.random() < 0.4:
                    row[str(draw.choice(["m", "n", "k"]))] //= 2
            kernels = wt.predict(job, profile=rows_of.made(rows, job))
            ways = [own.module(job, op, way, seconds * float(draw.uniform(0.5, 2.0)))
                    for op, seconds in (("layer", 5e-3), ("attention", 1e-3), ("mlp", 2e-3), ("head", 3e-3), ("norm", 1e-4))
                    for way in ("forward", "backward") if draw.random() < 0.7]  # fmt: skip
            modules = wt.predict(job, profile=rows_of.made(ways, job))
            return [[one.step_time_s, one.breakdown, one.provenance, one.relative_error, one.profile] for one in (kernels, modules)]

        answers.append(or_refused(asked))
    return digest(answers)


def _engines(gpu: str) -> Any:
    """Kernels of inference engines that a GPU takes: its own, others', carried ones; what they rest on, and their seconds."""
    from windtunnel.compute.engines import file as room
    from windtunnel.compute.engines import seconds as prices
    from windtunnel.spec import load_gpu

    on, answers = load_gpu(gpu), []
    dev = prices.engine_device(on)
    column = np.array([1.0, 7.0, 64.0, 900.0, 8192.0])
    caches = prices.Caches(column, column * 30, column * 0 + 4, column * 0 + 256, column * 0 + 128, column * 1e4, column * 1e8)
    prompts = prices.Prompts(column * 8, column * 16, column * 20, column * 0 + 96, column**2 * 1e6, column * 1e5, column * 5,
                             column * 0 + 0.25)  # fmt: skip
    for engine in ("vllm", "sglang", "trtllm"):
        found = [room.choose_engine(on, engine), room.choose_other(on, engine)[0], room.choose_carried(on, engine)]
        answers.append([room.is_carried(on), room.is_unmeasured(on), len(room.choose_other(on, engine)[1])])
        answers += [
            [kind, form, room.basis_of(on, engine, kind, form)]
            for kind, form in product(room.CLASSES, ("bf16", "fp8", "w8a8", "int4"))
        ]
        for curves in found:
            for form in ("bf16", "fp8", "w8a8", "int4", "mxfp4"):
                if form in curves.linear:
                    line = curves.linear[form]
                    answers.append(prices.product_seconds(line, dev, form, column, column * 0 + 4096, column * 0 + 2048))
                    answers.append(prices.quantise_seconds(line, dev, form, column, column * 0 + 4096))
                answers.append([prices.priced_as(on, form), prices.rate_of(dev, form)])
            for curve in list(curves.decode.values())[:2]:
                answers += [prices.decode_seconds(curve, dev, 2.0, caches, cold) for cold in (False, True)]
            for curve in list(curves.prefill.values())[:2]:
                answers += [prices.prefill_seconds(curve, dev, form, prompts) for form in ("bf16", "fp8")]
    return digest(answers)


def _odd_ranks() -> Any:
    """Jobs with a rank or a group of them that is slower, or hardly, than the others."""
    from windtunnel.runs.causes import _with_odd, with_factor
    from windtunnel.runs.factors import Odd

    job = wt.load("llama3-8b-8xh100", ["cluster.gpus=16", "plan.dp=16", "unequal.slow=[{nodes=[0],factor=1.1}]"])
    odd = [_with_odd(job, Odd(kind, ranks, factor)) for kind, ranks in (("rank", (3,)), ("group", (8, 9, 1)), ("group", ()))
           for factor in (0.9, 1.05, 1.6)]  # fmt: skip
    factors = [with_factor(with_factor(job, path, 1.2), path, 0.9).calibration for path in ("kernels.gemm", "calls.dp", "host")]
    return digest([[one.unequal.model_dump() for one in odd], [one.model_dump() for one in factors]])


def part_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {
        f"allocator {text} {limit:g}": partial(or_refused, partial(_allocated, text, limit))
        for text in ALLOCATORS for limit in (6e8, 3e9)
    }  # fmt: skip
    table |= {f"machine of dimensions {name}": partial(_on_grid, name) for name in GRIDS}
    table |= {f"profiled jobs from {first}": partial(_profiled, first) for first in (0, 6, 12)}
    table |= {f"counts of models {first}": partial(_counted, first) for first in range(4)}
    table |= {
        f"engines on {gpu}": partial(_engines, gpu) for gpu in ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "l40s", "t4")
    }
    table["odd ranks"] = _odd_ranks
    return table | {"files of sends": _send_files, "gathers and scatters": _rooted, "layouts": _layouts}
