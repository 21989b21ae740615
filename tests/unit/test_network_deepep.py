"""DeepEP's calls inside a domain: the form's laws, what a step pays for them, and whether a fit finds what made a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import make_job

import windtunnel as wt
from windtunnel.calibrate.forward.deepep import dispatch_rows, fit_dispatch, link_of, predict_dispatch
from windtunnel.network.closed.cost import (
    MOST_RANKS,
    SCALED,
    SMS,
    DispatchCurve,
    choose_dispatch,
    dispatch_seconds,
    dispatch_text,
    stored_dispatches,
)
from windtunnel.predict.price.calls import CallBook
from windtunnel.spec import load_cluster
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm
from windtunnel.workload.blocks.routing import distinct, routing

MIXED: dict[str, Any] = {
    "hidden": 4096, "heads": 32, "ffn": 14336, "expert_ffn": 14336, "experts": 8, "top_k": 2, "position": "rope",
}  # fmt: skip
CURVES = [(gpu, way) for gpu, ways in stored_dispatches().items() for way in ways]
MADE = DispatchCurve(4e-5, 2.2e10, 6e-7, 0.75, 2.0)


def job_on(cluster: str, ep: int = 8, **fields: Any) -> Job:
    job = make_job(**{**MIXED, **fields}, ep=ep, dp=ep, seq=4096, global_batch=ep, attention="flash")
    return job.model_copy(update={"cluster": load_cluster(cluster).model_copy(update={"gpus": ep})})


def seconds_of(job: Job, size: float = 4e8) -> float:
    return CallBook(job).price(Comm.ALL_TO_ALL, Axis.EP, size).seconds


@pytest.mark.parametrize(("gpu", "way"), CURVES)
@given(
    sms=st.integers(1, 64), tokens=st.integers(1, 65536), hidden=st.integers(256, 16384), copies=st.floats(1.0, 8.0),
    more=st.integers(1, 64),
)  # fmt: skip
def test_more_sms_never_take_longer_and_more_tokens_never_less(
    gpu: str, way: str, sms: int, tokens: int, hidden: int, copies: float, more: int
) -> None:
    curve = stored_dispatches()[gpu][way]

    def took(sms: int, tokens: int) -> float:
        moved = tokens * hidden * copies * 2.0
        return float(dispatch_seconds(curve, *(np.array([float(x)]) for x in (sms, tokens, moved, 0.875 * moved)), 450e9)[0])

    one = took(sms, tokens)
    assert took(sms + more, tokens) <= one * (1 + 1e-12) and took(sms, tokens + more) >= one * (1 - 1e-12)
    assert one >= curve.start + 0.875 * tokens * hidden * copies * 2.0 / (curve.wire * 450e9) * (1 - 1e-9)


@pytest.mark.parametrize("cluster", ["b200-ib", "h100-ib", "h200-ib"])
def test_a_step_pays_for_the_kernels_that_carry_its_tokens(cluster: str) -> None:
    """They hold 20 SMs unless the job says otherwise, and more SMs are faster."""
    job = job_on(cluster, moe_dispatch="deepep")
    found = CallBook(job).price(Comm.ALL_TO_ALL, Axis.EP, 4e8)
    own = cluster != "h200-ib"
    assert found.algorithm == "DeepEP" and found.channels == SMS and found.provenance == ("modelled" if own else "transferred")
    assert seconds_of(job_on(cluster, moe_dispatch="deepep", moe_dispatch_sms=24)) < found.seconds
    assert seconds_of(job_on(cluster, moe_dispatch="deepep", moe_dispatch_sms=8)) > 1.5 * found.seconds
    assert seconds_of(job_on(cluster)) < found.seconds  # NCCL's all-to-all of the same bytes


def test_other_libraries_groups_and_gpus_keep_the_network_s_price() -> None:
    book = CallBook(job_on("b200-ib"))
    for kept in (
        job_on("b200-ib", moe_dispatch="hybridep"),
        job_on("gb200-nvl72", ep=2 * MOST_RANKS, experts=16, moe_dispatch="deepep"),
        job_on("b200-ib", ep=2 * MOST_RANKS, experts=16, moe_dispatch="deepep"),
        job_on("mi300x-roce", moe_dispatch="deepep"),
    ):
        assert CallBook(kept).price(Comm.ALL_TO_ALL, Axis.EP, 4e8).algorithm != "DeepEP"
    assert book.price(Comm.ALL_TO_ALL, Axis.EP, 4e8).algorithm != "DeepEP"
    assert CallBook(job_on("b200-ib", moe_dispatch="deepep")).price(Comm.ALL_REDUCE, Axis.EP, 4e8).algorithm != "DeepEP"


def test_tokens_in_eight_bits_have_the_constants_of_a_dispatch() -> None:
    """On the way there; back and as gradients they are in 16 bits."""
    job = job_on("h100-ib", moe_dispatch="deepep", moe_dispatch_fp8=True)
    flow = routing(job, 4096, 2.0)
    book, ways = CallBook(job), stored_dispatches()["h100-sxm-80gb"]
    for size, way, width in ((flow.dispatch, "dispatch", SCALED), (flow.combine, "combine", 2.0)):
        tokens = size / (distinct(8, 8, 2) * 4096 * width)
        assert tokens == pytest.approx(4096)
        columns = (np.array([x]) for x in (float(SMS), tokens, size, size * 7 / 8))
        want = dispatch_seconds(ways[way], *columns, job.cluster.node.scale_up.bandwidth)[0]
        assert book.price(Comm.ALL_TO_ALL, Axis.EP, size).seconds == pytest.approx(float(want))


def test_an_unmeasured_architecture_has_none() -> None:
    assert choose_dispatch("mi300x", "cdna3") is None
    found = choose_dispatch("h200-sxm-141gb", "hopper")
    assert found is not None and found[1] == "h100-sxm-80gb"


def test_a_fit_finds_what_made_the_table(tmp_path: Path) -> None:
    """And reads a dispatch as FP8 with a scale for 128 numbers, a combine as bf16."""
    link, rows = link_of("h100-sxm-80gb"), []
    for hidden in (2048, 4096, 7168):
        for chosen, experts in ((1, 16), (2, 8), (6, 384), (8, 128), (8, 256)):
            for tokens in (512, 1024, 4096, 16384):
                for sms in (8, 16, 20, 24):
                    took = []
                    for width in (SCALED, 2.0):
                        moved = tokens * distinct(8, experts, chosen) * hidden * width
                        columns = (np.array([float(x)]) for x in (sms, tokens, moved, 0.875 * moved))
                        took.append(1e6 * float(dispatch_seconds(MADE, *columns, link)[0]))
                    rows.append(
                        {
                            "framework": "SGLang", "version": "1.0", "device": "NVIDIA H100 80GB HBM3", "op_name": "normal",
                            "kernel_source": "deepep", "node_num": 1, "hidden_size": hidden, "num_token": tokens,
                            "num_topk": chosen, "num_experts": experts, "dispatch_sms": sms, "dispatch_transmit_us": took[0],
                            "dispatch_notify_us": 0.0, "combine_sms": sms, "combine_transmit_us": took[1], "combine_notify_us": 0.0,
                        }
                    )  # fmt: skip
    path = tmp_path / "h100_sxm" / "comm" / "sglang" / "1.0" / "wideep_deepep_normal_perf.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    (one,) = wt.read_measured(tmp_path).engines
    curves, errors = fit_dispatch([one])
    for way, curve in curves.items():
        assert curve.rate == pytest.approx(MADE.rate, rel=0.05) and curve.scan == pytest.approx(MADE.scan, rel=0.1)
        assert float(np.abs(errors[way]).max()) < 0.02
        seen = dispatch_rows(one, way)
        assert seen is not None and seen.tokens.min() == 1024 and len(seen.tokens) == 180
        assert predict_dispatch(replace(curve, start=0.0), seen, link).max() < seen.seconds.max()


def test_the_file_s_text_is_what_is_read() -> None:
    import json

    text = dispatch_text("somewhere", stored_dispatches())
    read = json.loads(text)["gpus"]
    assert {gpu: set(ways) for gpu, ways in read.items()} == {gpu: set(ways) for gpu, ways in stored_dispatches().items()}
    assert DispatchCurve(**read["h100-sxm-80gb"]["combine"]) == stored_dispatches()["h100-sxm-80gb"]["combine"]
