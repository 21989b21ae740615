"""The laws that move a curve to another GPU, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windtunnel.compute.curves import AttentionCurve, GemmCurve
from windtunnel.compute.kernel_file import load
from windtunnel.compute.transfer.law import (
    Sheet,
    attention_moved,
    attention_with,
    distance,
    exponentials,
    frugal,
    gemm_held,
    gemm_moved,
    reach,
    sheet,
    sheet_of,
    strain,
)
from windtunnel.spec import load_gpu

HOPPER = Sheet("h", "hopper", 1000e12, 3e12, 128.0, 50e6, 700.0, 1.8e9)
CURVE = GemmCurve(
    fraction=0.9,
    tiles=((256, 128), (64, 64)),
    tile_cost=12.8,
    prologue=100.0,
    wave=0.5,
    memory=0.8,
    latency=4e-6,
    split=3e-6,
    blend=3.0,
    throttle=0.0,
    settle=3e-4,
)
FUSED = AttentionCurve(fraction=0.8, rows=128, wave=0.5, setup=100.0, head=60.0, causal=1.1, latency=6e-6)


def test_reach_is_that_of_the_largest_tile() -> None:
    assert reach(CURVE) == pytest.approx(0.9 / (1 + 12.8 * (1 / 256 + 1 / 128)))  # 0.9 / 1.15


def test_the_most_frugal_gpu_sets_the_energy() -> None:
    older = Sheet("a", "ampere", 300e12, 2e12, 108.0, 40e6, 300.0, 1.4e9)
    share = 0.9 / 1.15
    assert frugal([(older, CURVE)]) == pytest.approx(300 / (share * 300e12))
    assert frugal([(HOPPER, CURVE)]) == pytest.approx(700 / (share * 1000e12) / 0.7)  # a newer process does the same for less
    assert frugal([(older, CURVE), (HOPPER, CURVE)]) == pytest.approx(min(1.0, 0.7 / 0.7) * 1e-12 / share)
    throttled = replace(CURVE, throttle=0.25)
    assert frugal([(HOPPER, throttled)]) == pytest.approx(1.25 * frugal([(HOPPER, CURVE)]))
    assert frugal([(replace(older, power=None), CURVE)]) == float("inf")


def test_power_holds_the_rate_where_it_does_not_suffice() -> None:
    share = reach(CURVE)
    assert strain(HOPPER, share, 1e-12) == pytest.approx(0.7e-12 * share * 1000e12 / 700)  # 0.78: room left
    assert gemm_held(CURVE, HOPPER, 1e-12) == CURVE
    held = gemm_held(CURVE, HOPPER, 2e-12)
    assert reach(held) * 1000e12 * 2e-12 * 0.7 == pytest.approx(700.0)  # draws just the limit
    assert gemm_held(CURVE, replace(HOPPER, power=None), 2e-12) == CURVE


def test_a_relative_keeps_what_its_power_does_not_explain() -> None:
    slow = replace(CURVE, throttle=0.1)
    energy = 1e-12
    assert gemm_moved(slow, HOPPER, HOPPER, energy) == slow
    weak = gemm_moved(slow, HOPPER, replace(HOPPER, power=350.0), energy)
    left = reach(slow) / 1.1
    assert weak.fraction == pytest.approx(slow.fraction / (0.7e-12 * left * 1000e12 / 350))
    silent = gemm_moved(slow, HOPPER, replace(HOPPER, power=None, peak=2000e12), energy)
    assert silent.fraction == slow.fraction  # no power stated: the relative's for each FLOP/s


def test_a_throttled_relative_is_lifted_by_more_power() -> None:
    hot = replace(CURVE, throttle=0.5)
    energy = 700 / (reach(hot) / 1.25 * 1000e12 * 0.7)  # its power explains 1.25 of its 1.5
    assert strain(HOPPER, reach(hot), energy) == pytest.approx(1.25)
    free = gemm_moved(hot, HOPPER, replace(HOPPER, power=10000.0), energy)
    assert free.fraction == pytest.approx(hot.fraction * 1.25)


def test_smaller_tensor_cores_waste_less() -> None:
    cut = replace(HOPPER, peak=250e12)
    assert gemm_moved(CURVE, HOPPER, cut, 1e-12).tile_cost == pytest.approx(12.8 / 2)
    assert gemm_moved(CURVE, HOPPER, replace(HOPPER, peak=600e12), 1e-12).tile_cost == 12.8
    assert gemm_moved(CURVE, HOPPER, replace(HOPPER, peak=4000e12, power=1e5), 1e-12).tile_cost == 12.8


def test_exponentials_by_hand() -> None:
    assert exponentials(sheet(load_gpu("h100-sxm-80gb")), "forward") == pytest.approx(989.4e12 / (4 * 16 * 132 * 1.83e9))  # 64.0
    assert exponentials(HOPPER, "backward") == pytest.approx(1000e12 / (10 * 16 * 128 * 1.8e9))
    assert exponentials(replace(HOPPER, clock=None), "forward") is None
    with_them = attention_with(FUSED, "forward", HOPPER, 0.5)
    assert with_them.head == pytest.approx(60 + 0.5 * 0.8 * 1000e12 / (64 * 128 * 1.8e9))
    assert attention_with(FUSED, "backward", replace(HOPPER, sms=None), 0.5).head == pytest.approx(60 + 0.5 * 0.8 * 25.6)


def test_attention_of_a_relative_moves_by_the_balance_of_units() -> None:
    assert attention_moved(FUSED, "forward", HOPPER, HOPPER, 0.5) == FUSED
    one = 1000e12 / (64 * 128 * 1.8e9)
    wide = replace(HOPPER, peak=2000e12)
    assert attention_moved(FUSED, "forward", HOPPER, wide, 0.5).head == pytest.approx(60 + 0.5 * 0.8 * one)
    assert attention_moved(FUSED, "forward", HOPPER, replace(HOPPER, peak=250e12), 0.5).head == pytest.approx(15.0)
    assert attention_moved(FUSED, "forward", HOPPER, replace(wide, clock=None), 0.5) == FUSED


def test_nearness_of_architectures() -> None:
    assert distance("hopper", "hopper") == 0.0 < distance("ada", "hopper") == 0.5 < distance("ampere", "hopper") == 2.0
    assert distance("hopper", "unheard-of") == 100.0


def test_sheets_of_a_catalogue_entry_and_of_its_constants_agree() -> None:
    for name in ("a100-pcie-80gb", "h100-sxm-80gb", "b200-sxm-180gb"):
        ours, theirs = sheet(load_gpu(name)), sheet_of(load(name))
        assert (ours.id, ours.sms, ours.power, ours.clock) == (theirs.id, theirs.sms, theirs.power, theirs.clock)
        assert ours.peak == pytest.approx(theirs.peak, rel=1e-3) and ours.bandwidth == pytest.approx(theirs.bandwidth, rel=5e-3)
    volta = sheet(load_gpu("v100-sxm2-32gb"))
    assert volta.peak == 125e12  # no bf16
