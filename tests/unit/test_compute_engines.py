"""Seconds of engines' kernels: bounds that hold for any shape, and curves that a GPU takes from another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.dtypes import FORMATS
from windtunnel.base.errors import FileError
from windtunnel.calibrate.engines.columns import fill_up, route_tokens
from windtunnel.calibrate.engines.fit import EXPERTS, FIRST, QuantisedProduct
from windtunnel.calibrate.engines.solve import solve_curve
from windtunnel.compute.engines.curves import (
    DecodeCurve,
    EngineCurves,
    ExpertsCurve,
    LinearCurve,
    PointwiseCurve,
    PrefillCurve,
    ReduceCurve,
)
from windtunnel.compute.engines.file import choose_engine, curve_of, engines_text, measured_gpus, read_engines
from windtunnel.compute.engines.seconds import (
    TILES,
    Caches,
    Prompts,
    Routed,
    decode_seconds,
    engine_device,
    experts_seconds,
    padded_rows,
    pointwise_seconds,
    prefill_seconds,
    product_seconds,
    quantise_seconds,
    reduce_seconds,
)
from windtunnel.spec import load_gpu

H100 = load_gpu("h100-sxm-80gb")
DEV = engine_device(H100)
ENGINES = ("vllm", "sglang", "trtllm")
PROMPTS = PrefillCurve(0.7, 128, 0.5, 0.7, 200.0, 60.0, 0.2, 0.1, 8e-6)
DECODE = DecodeCurve(8e-6, 0.85, 1e-6, 1e-9, 3e-6, 2.0, 2.0)


def caches(sequences: float, keys: float, groups: float = 8.0, dim: float = 128.0) -> Caches:
    sizes = (sequences, keys, groups, 2 * dim, dim, 0.0, 0.0)
    return Caches(*(np.array([float(size)]) for size in sizes))


@pytest.mark.parametrize("gpu", measured_gpus())
@pytest.mark.parametrize("engine", ENGINES)
@given(m=st.integers(1, 32768), n=st.integers(64, 65536), k=st.integers(64, 65536))
def test_no_product_beats_peak_or_twice_the_memory(gpu: str, engine: str, m: int, n: int, k: int) -> None:
    """Shares of bandwidth go up to 1.1, since data sheets round down."""
    on = load_gpu(gpu)
    dev = engine_device(on)
    sizes = [np.array([float(size)]) for size in (m, n, k)]
    for form, curve in choose_engine(on, engine).linear.items():
        took = product_seconds(curve, dev, form, *sizes)[0]
        assert took >= 2.0 * m * n * k / max(dev.integers, *on.peak.values())
        assert took >= 0.5 * FORMATS[form].width * n * k / on.memory_bandwidth


@given(sequences=st.integers(1, 512), keys=st.integers(1, 100_000), more=st.integers(1, 1000))
def test_longer_caches_and_more_of_them_never_take_less(sequences: int, keys: int, more: int) -> None:
    one = decode_seconds(DECODE, DEV, 2.0, caches(sequences, keys), True)[0]
    assert decode_seconds(DECODE, DEV, 2.0, caches(sequences, keys + more), True)[0] >= one * (1 - 1e-12)
    assert decode_seconds(DECODE, DEV, 2.0, caches(sequences + more, keys), True)[0] >= one * (1 - 1e-12)
    assert one >= sequences * keys * 8 * 256 * 2.0 / H100.memory_bandwidth


def test_a_large_cache_is_read_at_the_share_of_bandwidth() -> None:
    """64 sequences of 32,768 keys, 8 heads of 128: 8.6 GB at 0.85 of 3.35 TB/s are 3.02 ms; blocks add to them in the norm."""
    took = decode_seconds(replace(DECODE, setup=0.0, key=0.0), DEV, 2.0, caches(64, 32768), True)[0]
    assert took == pytest.approx(8e-6 + 64 * 32768 * 8 * 256 * 2 / (0.85 * 3.35e12), rel=1e-6)


BLOCKS = replace(DECODE, latency=0.0, memory=1e9)
"""Only blocks take time: 1 us and 1 ns a key, 3 us to join parts."""


@pytest.mark.parametrize(
    ("sequences", "keys", "dim", "micro"),
    [
        (1, 2048, 128, 1.0 + 2.048),  # 8 blocks: one part, which nobody joins
        (1, 65536, 128, 1.0 + 65.536 / 16 + 3.0),  # 16 parts are 128 blocks on 132 SMs; joined
        (33, 2048, 128, 2 * (1.0 + 2.048)),  # 264 blocks are two waves
        (20, 2048, 128, (0.5 * 2 + 0.5 * 160 / 132) * (1.0 + 2.048)),  # half of what the second wave leaves empty is lost
        (1, 2048, 256, 1.0 + 2.048 * 2 / 16 + 3.0),  # keys are twice as long: one part would take 5.10 us
    ],
)
def test_blocks_of_a_decode_by_hand(sequences: int, keys: int, dim: int, micro: float) -> None:
    """8 heads. Parts s of the cache: waves(8 s sequences) x (1 us + keys / s ns x dim / 128), 3 us if s > 1; the best s."""
    assert decode_seconds(BLOCKS, DEV, 2.0, caches(sequences, keys, dim=dim), True)[0] == pytest.approx(micro * 1e-6, rel=1e-6)


def test_scores_of_a_decode_are_bound_by_the_peak() -> None:
    """989.4 MFLOP at half of 989.4 TFLOP/s are 2 us, beside blocks of 3.048 us in the norm of exponent 2; 8 us of latency."""
    sizes = (1.0, 2048.0, 8.0, 256.0, 128.0, 0.0, 989.4e6)
    took = decode_seconds(replace(BLOCKS, latency=8e-6, rate=0.5), DEV, 2.0, Caches(*(np.array([x]) for x in sizes)), True)[0]
    assert took == pytest.approx(8e-6 + (2.0**2 + 3.048**2) ** 0.5 * 1e-6, rel=1e-6)


@pytest.mark.parametrize(("share", "counted"), [(0.5, 0.25), (1.0, 0.5), (1.5, 0.25 + 1.0), (3.0, 3.0)])
def test_caches_in_the_l2_move_twice_as_fast(share: float, counted: float) -> None:
    """Of `share` x 50 MiB the L2 holds all up to its size, less and less of what is larger, and nothing of twice its size."""
    keys = share * 50 * 2**20 / (8 * 256 * 2)
    one = replace(DECODE, latency=0.0, setup=0.0, key=0.0, merge=0.0)
    took = decode_seconds(one, DEV, 2.0, caches(1, keys), False)[0]
    assert took == pytest.approx(counted * 50 * 2**20 / (0.85 * 3.35e12), rel=1e-6)


def test_the_cache_of_the_l2_is_not_counted_for_a_model() -> None:
    small = caches(1, 8192)
    assert decode_seconds(DECODE, DEV, 2.0, small, False)[0] < decode_seconds(DECODE, DEV, 2.0, small, True)[0]


def prompts(batch: float, tokens: float, k: float = 128.0, window: float = 0.0, own: float = 0.125) -> Prompts:
    seen = min(window, tokens) if window else tokens
    pairs = tokens * seen - seen * (seen - 1.0) / 2.0
    moved = 4.0 * batch * tokens * k * (1.0 + own)
    return Prompts(*(np.array([x]) for x in (batch, tokens, tokens, k, 4.0 * batch * pairs * k, moved, window, own)))


@given(
    batch=st.integers(1, 4096),
    tokens=st.integers(1, 65536),
    more=st.integers(1, 4096),
    k=st.sampled_from([64.0, 128.0, 256.0, 512.0]),
)
def test_longer_prompts_and_heads_with_keys_of_their_own_never_take_less(batch: int, tokens: int, more: int, k: float) -> None:
    one = prefill_seconds(PROMPTS, DEV, "bf16", prompts(batch, tokens, k))[0]
    assert prefill_seconds(PROMPTS, DEV, "bf16", prompts(batch + more, tokens, k))[0] >= one * (1 - 1e-9)
    assert prefill_seconds(PROMPTS, DEV, "bf16", prompts(batch, tokens, k, own=1.0))[0] >= one * (1 - 1e-9)
    assert one >= 2.0 * batch * tokens * (tokens + 1) * k / H100.peak["bf16"]


@given(batch=st.integers(1, 512), blocks=st.integers(2, 256), window=st.integers(1, 4096), more=st.integers(1, 4096))
def test_a_wider_window_never_takes_less_and_none_the_most(batch: int, blocks: int, window: int, more: int) -> None:
    tokens = 128.0 * blocks
    took = [
        prefill_seconds(PROMPTS, DEV, "bf16", prompts(batch, tokens, window=float(each)))[0]
        for each in (min(window, tokens), min(window + more, tokens), 0)
    ]
    assert took[0] <= took[1] * (1 + 1e-9) and took[1] <= took[2] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("k", "window", "tokens", "seen", "longest", "pad", "wide"),
    [
        (128.0, 0.0, 1024, 512.5, 1024 / 512.5, 1.0, 1.0),  # causal: half of 1,024 keys and the query's own
        (128.0, 256.0, 1024, 384.0, 1.0, 1.0, 1.0),  # blocks of 128 queries read 256 + 128 keys, all of them
        (128.0, 512.0, 1024, 512.5, 640 / 512.5, 1.0, 1.0),  # blocks read 640 keys, but on the mean no more than there are before
        (128.0, 2048.0, 1024, 512.5, 1024 / 512.5, 1.0, 1.0),  # a window that is no shorter than the prompt is none
        (80.0, 0.0, 1024, 512.5, 1024 / 512.5, 96 / 80, 1.0),  # kernels for heads of 96
        (256.0, 0.0, 1024, 512.5, 1024 / 512.5, 1.0, 1.2),  # 128 elements beyond the first: 1 + 0.2
        (128.0, 0.0, 1000, 500.5, 1000 / 500.5, 1024 / 1000, 1.0),  # eight blocks of rows for 1,000
    ],
)
def test_prompts_by_hand(k: float, window: float, tokens: int, seen: float, longest: float, pad: float, wide: float) -> None:
    """132 heads on 132 SMs, 8 blocks of rows each: 8 waves, and half of the longest block's time at the end."""
    of = prompts(132, tokens, k, window)
    work = 4 * 132 * tokens * k * seen
    heads = (1 + 60 / k) * wide * (1 + 0.1 * 0.125)
    slow = pad * (8 + 0.5 * longest) / 8 * (1 + 200 / seen) * heads
    core = 8e-6 + work / (0.7 * 989.4e12) * slow
    moved = 4 * 132 * tokens * k * 1.125 / (0.8 * 3.35e12)
    assert prefill_seconds(PROMPTS, DEV, "bf16", of)[0] == pytest.approx((core**2 + moved**2) ** 0.5, rel=1e-6)


def test_a_block_alone_takes_its_share_of_the_longest() -> None:
    """One head of 128 tokens: one block of 132 SMs. 0.7 of the longest one's time, whose mask hides half: 1.985 x the mean."""
    of = prompts(1, 128)
    slow = 0.7 * 128 / 64.5 * 132 * (1 + 200 / 64.5) * (1 + 60 / 128) * (1 + 0.1 * 0.125)
    curve = replace(PROMPTS, wave=0.1)
    core = 8e-6 + 4 * 128 * 128 * 64.5 / (0.7 * 989.4e12) * slow
    assert prefill_seconds(curve, DEV, "bf16", of)[0] == pytest.approx(core, rel=1e-3)


def test_quantising_reads_sixteen_bits_and_writes_the_format() -> None:
    curve = LinearCurve(FIRST, 2e-6, 0.5)
    took = quantise_seconds(curve, DEV, "fp8", np.array([4096.0]), np.array([8192.0]))[0]
    assert took == pytest.approx(2e-6 + 3 * 4096 * 8192 / (0.5 * 3.35e12))
    assert quantise_seconds(curve, DEV, "bf16", np.array([4096.0]), np.array([8192.0]))[0] == 0.0


def test_experts_read_what_was_chosen_and_compute_whole_tiles() -> None:
    """8 copies on 8 experts of 1024 x 512: weights of three matrices in bf16, and 8 tiles of 16 rows."""
    curve = ExpertsCurve(0.0, 1.0, 1.0, 0.0, 1e6, 1e6, 1.0)
    one = [np.array([x]) for x in (8.0, 1.0, 8.0, 8.0)]
    routed = Routed(*one, padded_rows(one[2], one[3]), *(np.array([x]) for x in (1024.0, 512.0, 3.0)))
    weights = 8 * 1024 * 512 * 3 * 2 / 3.35e12
    products = 2 * 8 * 16 * 1024 * 512 * 3 / H100.peak["bf16"]
    assert experts_seconds(curve, DEV, "bf16", routed)[0] == pytest.approx(weights + products, rel=1e-6)


@pytest.mark.parametrize(
    ("copies", "active", "rows"),
    [
        (100.0, 4.0, (128.0, 128.0, 256.0, 512.0)),  # 25 each: two tiles of 16, or one of the larger ones
        (3.0, 8.0, (128.0, 256.0, 512.0, 1024.0)),  # a row at least on each
        (0.0, 0.0, (16.0, 32.0, 64.0, 128.0)),  # one expert at least
    ],
)
def test_rows_of_whole_tiles_by_hand(copies: float, active: float, rows: tuple[float, ...]) -> None:
    assert padded_rows(np.array([copies]), np.array([active])).tolist() == [list(rows)]


def test_experts_by_hand() -> None:
    """64 tokens, 2 copies of each, 40 of them here on 2 of 8 experts of 1024 x 512: 20 each, two tiles of 16. Weights at half of
    the bandwidth and products at 0.4 of the peak, 1 + 8 / 16 slower in tiles of 16, join in the norm of 2; then copies at half of
    the bandwidth and all copies at a quarter."""
    curve = ExpertsCurve(5e-6, 0.5, 0.4, 8.0, 0.5, 0.25, 2.0)
    sizes = (64.0, 2.0, 40.0, 2.0)
    routed = Routed(
        *(np.array([x]) for x in sizes),
        padded_rows(np.array([40.0]), np.array([2.0])),
        *(np.array([x]) for x in (1024.0, 512.0, 3.0)),
    )
    weights = 2 * 1024 * 512 * 3 * 1.0 / (0.5 * 3.35e12)
    work = [
        2 * 2 * rows * (1 + 8 / tile) * 1024 * 512 * 3 / (0.4 * 1978.9e12)
        for rows, tile in ((32, 16), (32, 32), (64, 64), (128, 128))
    ]
    own = 40 * (1024 * (1.0 + 6.0) + 2 * 512 * 3) + 4 * 64 * 1024
    every = 64 * 2 * (2 * 1024 + 2 * 512 * 3)
    moves = own / (0.5 * 3.35e12) + every / (0.25 * 3.35e12)
    expected = 5e-6 + (weights**2 + min(work) ** 2) ** 0.5 + moves
    assert experts_seconds(curve, DEV, "fp8", routed)[0] == pytest.approx(expected, rel=1e-9)


def test_experts_in_mxfp4_are_padded_to_whole_256s() -> None:
    """One expert of 2880 x 90 reads weights of 3072 x 256."""
    curve = ExpertsCurve(0.0, 1.0, 1e6, 0.0, 1e9, 1e9, 1.0)
    one = [np.array([x]) for x in (1.0, 1.0, 1.0, 1.0)]
    routed = Routed(*one, padded_rows(one[2], one[3]), *(np.array([x]) for x in (2880.0, 90.0, 3.0)))
    weights = 3072 * 256 * 3 * FORMATS["mxfp4"].width / 3.35e12
    assert experts_seconds(curve, DEV, "mxfp4", routed)[0] == pytest.approx(weights, rel=1e-3)


def test_pointwise_kernels_by_hand() -> None:
    """Three launches of 2 us, and 10 MB at 0.8 of the bandwidth; what the L2 holds moves four times as fast where it is there."""
    curve = PointwiseCurve(2e-6, 0.8, cache=4.0)
    moved = np.array([1e7])
    assert pointwise_seconds(curve, DEV, moved, 3.0)[0] == pytest.approx(6e-6 + 1e7 / (0.8 * 3.35e12))
    assert pointwise_seconds(curve, DEV, moved, 1.0, cold=False)[0] == pytest.approx(2e-6 + 2.5e6 / (0.8 * 3.35e12))


@given(tokens=st.integers(1, 8192), top_k=st.integers(1, 8), ep=st.sampled_from([1, 2, 8]), skew=st.sampled_from([0.0, 1.01, 1.2]))
def test_the_fullest_rank_has_its_share_of_copies_at_least(tokens: int, top_k: int, ep: int, skew: float) -> None:
    copies, active, rows = route_tokens(tokens, top_k, 64, ep, skew)
    assert copies >= tokens * top_k / ep * (1 - 1e-9)
    assert copies <= max(tokens * top_k, 1) * (1 + 1e-9)
    assert 0.0 < active <= 64 / ep
    assert all(row >= 0.6 * min(copies, tile) for row, tile in zip(rows, TILES, strict=True))


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=12), more=st.integers(0, 60))
def test_copies_that_are_missing_go_to_the_emptiest_one_by_one(counts: list[int], more: int) -> None:
    dealt = list(counts)
    for _ in range(more):
        dealt[dealt.index(min(dealt))] += 1
    assert sorted(fill_up(np.array([counts], np.float64), np.array([float(more)]))[0].tolist()) == sorted(dealt)


@pytest.mark.parametrize(
    ("skew", "tokens", "micros"),
    [
        (1.01, 16, 286.4),
        (1.01, 64, 529.7),
        (1.01, 96, 576.8),
        (1.2, 16, 266.4),
        (1.2, 32, 339.1),
        (1.2, 64, 531.7),
        (1.2, 128, 605.9),
    ],
)
def test_a_skewed_routing_chooses_the_experts_that_a_kernel_reads(skew: float, tokens: int, micros: float) -> None:
    """gpt-oss-120b's experts in vLLM 0.24.0 on an H100 (aiconfigurator, MXFP4, tp 1) take 62.9 us with 4 of 128 experts chosen and
    687.0 with all: 5.03 us for each, whose weights are what it reads."""
    chosen = 4 + (micros - 62.9) / (687.0 - 62.9) * 124
    assert route_tokens(tokens, 4, 128, 1, skew)[1] == pytest.approx(chosen, rel=0.08)


def test_an_all_reduce_takes_one_step_if_small_and_two_if_large() -> None:
    curve = ReduceCurve(4e-6, 0.0, 0.5, 2.0, 0.5)
    ranks, sizes = np.array([8.0, 8.0]), np.array([1024.0, 64e6])
    small, large = reduce_seconds(curve, 450e9, ranks, sizes)
    assert small == pytest.approx(4e-6 + 7 * 1024 / 225e9)
    assert large == pytest.approx(8e-6 + 2 * 7 / 8 * 64e6 / 225e9)


def test_a_fit_finds_the_curve_that_made_its_rows() -> None:
    truth = ExpertsCurve(4e-5, 0.7, 0.5, 30.0, 0.3, 4.0, 2.0)
    draw = np.random.default_rng(1)
    tokens = 2.0 ** draw.integers(0, 14, 400)
    copies, active = tokens * 8, np.minimum(tokens * 8, 256.0)
    sizes = [np.full(400, x) for x in (4096.0, 1024.0, 3.0)]
    routed = Routed(tokens, np.full(400, 8.0), copies, active, padded_rows(copies, active), *sizes)
    seconds = experts_seconds(truth, DEV, "bf16", routed)
    start = ExpertsCurve(3e-5, 0.8, 0.6, 20.0, 0.4, 5.0, 2.5)
    found = solve_curve(start, EXPERTS, lambda curve: experts_seconds(curve, DEV, "bf16", routed), seconds)
    errors = np.log(experts_seconds(found, DEV, "bf16", routed) / seconds)
    assert np.median(np.abs(errors)) < 0.02


def test_a_linear_layer_is_taken_apart_again() -> None:
    made = QuantisedProduct.of(FIRST, 3e-6, 0.4).as_linear()
    assert made == LinearCurve(FIRST, 3e-6, 0.4)


@pytest.mark.parametrize("name", ["h200-sxm-141gb", "gb300-nvl72", "rtx-pro-6000", "v100-sxm2-32gb", "mi300x"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_gpu_has_every_class(name: str, engine: str) -> None:
    curves = choose_engine(load_gpu(name), engine)
    assert curves.reduce is not None and curves.pointwise is not None
    for form in ("bf16", "fp8", "fp8_block", "nvfp4"):
        assert curve_of(curves.linear, form) and curve_of(curves.experts, form)
    assert curves.latent_decode and curves.latent_prefill and curves.decode and curves.prefill


def test_systems_of_the_test_of_transfer_have_no_file() -> None:
    assert not {"gb300-nvl72", "rtx-pro-6000"} & set(measured_gpus())


@pytest.mark.parametrize("gpu", measured_gpus())
def test_a_file_is_read_as_it_was_written(gpu: str, tmp_path: Path) -> None:
    engines = {
        name: curves for name in ENGINES for curves in [choose_engine(load_gpu(gpu), name)] if isinstance(curves, EngineCurves)
    }
    path = tmp_path / "one.json"
    path.write_text(engines_text(gpu, "hopper", "here", engines))
    again = read_engines(path)
    assert engines_text(gpu, "hopper", "here", again) == path.read_text()


@pytest.mark.parametrize(
    ("old", "new"), [('"latency"', '"latncy"'), ('"format": 1', '"format": 2'), ('"memory": 0', '"memory": -0')]
)
def test_a_broken_file_is_named(old: str, new: str, tmp_path: Path) -> None:
    text = engines_text("x", "hopper", "here", {"vllm": choose_engine(H100, "vllm")})
    path = tmp_path / "x.json"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FileError, match="windtunnel fit engines"):
        read_engines(path)


def test_a_kernel_that_moves_bytes_has_the_start_of_its_architecture() -> None:
    """MI300X has one of its own, MI355X the default GPU's: products alone are carried between them."""
    default = choose_engine(H100, "vllm").pointwise
    assert choose_engine(load_gpu("mi300x"), "vllm").pointwise == PointwiseCurve(latency=1.1e-5, memory=0.67)
    assert choose_engine(load_gpu("mi355x"), "vllm").pointwise == default


@pytest.mark.parametrize("rows, milliseconds", [(1, 0.14), (16, 0.14), (32, 0.18), (64, 0.29), (256, 1.13), (4000, 17.76)])
def test_marlin_runs_blocks_of_64_rows(rows: int, milliseconds: float) -> None:
    """Its bench on an A100 (vllm-project/vllm pull request 2497): weights of 313 M numbers, at 141 TFLOP/s from 64 rows on; the
    time of few rows is that of the weights, of which the GPU's bandwidth is not known."""
    gpu = load_gpu("a100-sxm-80gb")
    columns = (np.array([value]) for value in (float(rows), 27648.0, 11327.0))
    curve = choose_engine(gpu, "vllm").linear["int4"]
    seconds = float(product_seconds(curve, engine_device(gpu), "int4", *columns)[0])
    assert seconds == pytest.approx(milliseconds * 1e-3, rel=0.03 if rows >= 64 else 0.3)
    assert choose_engine(gpu, "trtllm").linear["int4"] != curve == choose_engine(gpu, "sglang").linear["int8"]
