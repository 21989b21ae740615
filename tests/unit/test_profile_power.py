"""Clocks, power and throttling from a board that answers, answers in part, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.profile.power import Nvml, PowerReading, Silent, Smi, driver, meter, reasons


class Library:
    """NVML's Python binding as far as it is used; `broken` names calls that fail."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self.broken, self.joules = broken, 5_000_000

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"board {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        assert uuid == "GPU-1-2"
        return "board 2"

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken:
            raise self.NVMLError
        return value

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        assert (handle, kind) == ("board 2", 1)
        return int(self._answer("clock", 1755))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._answer("power", 612_500))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return int(self._answer("reasons", 0x4 | 0x40 | 0x1))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return int(self._answer("energy", self.joules))

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"


def test_nvml_in_si_units() -> None:
    board = Nvml(Library(), 2)
    assert board.read() == PowerReading(1.755e9, 612.5, None, "power cap, thermal, hardware")
    assert board.joules() == 5000.0 and driver(board) == "580.1"
    assert Nvml(Library(), 0, "GPU-1-2").read() == board.read()


def test_what_a_board_does_not_tell_is_none() -> None:
    board = Nvml(Library(broken=("power", "reasons", "energy")), 2)
    assert board.read() == PowerReading(1.755e9, None, None, None)
    assert board.joules() is None


def test_smi() -> None:
    asked: list[list[str]] = []

    def ask(command: list[str]) -> str:
        asked.append(command)
        return "1980, 250.5, 0x0000000000000000, 550.54\n"

    board = Smi(1, ask)
    assert board.read() == PowerReading(1.98e9, 250.5, None, "") and board.driver() == "550.54"
    assert "--id=1" in asked[0]
    assert Smi(0, lambda command: "").read() == PowerReading()
    assert Smi(0, lambda command: "[N/A], [N/A], Not Supported, 1").read() == PowerReading()


def test_power_needs_a_kernel_that_filled_long_enough() -> None:
    read = PowerReading(1e9, 400.0, None, "")
    assert read.of(0.01, share=0.95, lasted=0.3, joules=None).energy_j == pytest.approx(4.0)
    assert read.of(0.01, share=0.95, lasted=0.3, joules=150.0).power_w == pytest.approx(500.0)
    assert read.of(0.01, share=0.5, lasted=0.3, joules=150.0).power_w is None
    assert read.of(0.01, share=0.95, lasted=0.05, joules=None).energy_j is None


def test_nothing_to_ask() -> None:
    assert isinstance(meter(cuda=False), Silent) and Silent().read() == PowerReading() and driver(Silent()) == ""
    assert reasons(0x1) == "" and reasons(0x20) == "thermal, software"
