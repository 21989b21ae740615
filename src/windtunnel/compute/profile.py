"""A dataset for `predict`: checked to be of the job's GPU, with its look-up tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.compute.measured import Measured
from windtunnel.compute.modules import Modules

if TYPE_CHECKING:
    from windtunnel.records import Dataset
    from windtunnel.spec.machine import GPU


@dataclass(frozen=True)
class Profile:
    """Kernel rows, and rows of sub-modules and layers, of one dataset. `name`: its name in reports."""

    name: str
    gpu: str
    kernels: Measured
    modules: Modules

    @classmethod
    def of(cls, data: Dataset | str | Path, name: str = "") -> Profile:
        """From a dataset or its file. Raises FileError and SpecError as `records.read_any` does."""
        if isinstance(data, (str, Path)):
            from windtunnel.records import read_any

            name, data = name or Path(data).name, read_any(data)
        name = name or f"profile of {data.about.gpu}"
        return cls(name, data.about.gpu, Measured(data, name), Modules(data, name))

    def on(self, gpu: GPU) -> Profile:
        """Itself; SpecError if it was measured on another GPU than `gpu`."""
        if self.gpu != gpu.id:
            raise SpecError(
                "profile",
                f"{self.name}, measured on {self.gpu}",
                f"a profile of {gpu.id}, the job's GPU",
                "Choose a cluster with the profile's GPU, or fit curves to it: `windtunnel fit kernels`.",
            )
        return self
