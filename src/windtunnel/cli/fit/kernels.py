"""`windtunnel fit kernels FILE... -o NAME.json`, also called `windtunnel profile fit`."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.calibrate.options import KernelFitCommandOptions
from windtunnel.cli.shared.common import names_of
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit kernels kernels.parquet -o my-gpu.json     then: windtunnel predict JOB --kernels my-gpu.json
  windtunnel fit kernels a.parquet b.parquet --only gemm --from h100-sxm-80gb -o my-gpu.json
"""


@command_of(KernelFitCommandOptions, order=("data", "out", "gpu"))
def command(asked: KernelFitCommandOptions, outputs: Outputs) -> None:
    files, out = names_of(asked.data), asked.out
    if not out.endswith(".json"):
        raise SpecError("--out", out, "a name that ends in .json")
    from windtunnel.calibrate.fit_sheet import kernels_sheet
    from windtunnel.cli.shared.progress import stoppable
    from windtunnel.fit import kernels, save_kernels
    from windtunnel.records import read_any

    data = [read_any(file) for file in files]
    for file, each in zip(files, data, strict=True):
        if asked.gpu is not None and each.about.gpu != asked.gpu:
            raise SpecError(f"{file}: about.gpu", each.about.gpu, asked.gpu, "Leave --gpu out, or give that GPU's dataset.")
    with stoppable("fitting") as report:
        fitted = kernels(data, relative=asked.relative, only=asked.only, report=report)
    save_kernels(fitted, out)
    outputs.show(kernels_sheet(fitted.as_dict(), out), {"file": out, **fitted.as_dict()})
