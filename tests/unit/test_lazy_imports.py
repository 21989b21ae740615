"""What a verb imports: rooms that it does not need cost every run of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.formats.simulators.simai.workload import SimaiLayer, SimaiWorkload, workload_text

KEYS = {"tp": 8, "ep": 1, "pp": 1, "vpp": 1, "ga": 1, "gpus": 64}


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    layer = SimaiLayer("mlp", (10_000, 10_000, 10_000), ("ALLREDUCE", "NONE", "NONE"), (2**24, 0, 0), 0)
    path = tmp_path / "workload.txt"
    path.write_text(workload_text(SimaiWorkload("HYBRID_TRANSFORMER_FWD_IN_BCKWD", KEYS, (layer,) * 4)))
    return path


def loaded(arguments: list[str]) -> set[str]:
    """Modules that are there after a command line ran in its own process."""
    program = (
        "import sys; from windtunnel.cli import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_simai_needs_no_job_no_network_and_no_numpy(workload: Path) -> None:
    modules = loaded(["simai", str(workload), "--json", "-"])
    assert "windtunnel_oracles.simai.run" in modules
    assert not modules & {"numpy", "scipy", "windtunnel.spec.job", "windtunnel.network", "windtunnel.predict.prediction"}


def test_a_trace_needs_no_job(workload: Path) -> None:
    modules = loaded(["import", str(workload), "--json", "-"])
    assert "windtunnel.formats.simulators.simai.graph" in modules
    assert not modules & {"scipy", "windtunnel.spec.job", "windtunnel.workload", "windtunnel.network"}


@pytest.mark.parametrize("room", ["formats", "records", "replay", "spec"])
def test_every_name_of_a_room_is_there(room: str) -> None:
    """Whatever was imported before: a name and a submodule of the same name would hide each other."""
    module = __import__(f"windtunnel.{room}", fromlist=["__all__"])
    folder = Path(str(module.__file__)).parent
    parts = {path.stem for path in folder.iterdir()}
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert not parts & set(module.__all__)
    with pytest.raises(AttributeError):
        _ = module.nothing_of_this_name


def test_a_verb_of_the_oracles_says_what_to_install(workload: Path) -> None:
    hidden = "import sys; sys.modules['windtunnel_oracles'] = None; from windtunnel.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", hidden, "simai", str(workload)], capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'windtunnel[oracles]'" in done.stderr and "Traceback" not in done.stderr
