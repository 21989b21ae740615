"""The wheels from outside of the checkout, in environments that hold nothing else. `make test-wheel` runs it after
release/build.py.

For the Python that runs this, and the newest that the abi3 wheels serve: `windtunnel-fleet` alone works and says what it lacks;
with `windtunnel` beside it a prediction is that of the tree. On this Python, `windtunnel-fleet` alone also trains (train.py), with
the torch of this environment, and each of the two is uninstalled without a file of the other's.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "release"))
from cut import PACKAGE, files_of, name_of, tracked, version  # noqa: E402

from build import ABI3, installed  # noqa: E402

JOB = "llama3-8b-8xh100"
JOBS = [(JOB, []), ("gpt3-175b-64", ["plan.vpp=1", "plan.schedule=dualpipe", "runtime.overlap_p2p=true"])]
"""Of the second, two passes tie: a sum that rounds otherwise on another Python turns them."""
SIMULATOR_ALONE = "windtunnel-fleet, which is installed here alone. Type: pip install windtunnel"


def files_in(wheel: Path) -> set[str]:
    """Files of the package in a wheel."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def check_files(fleet: Path, simulator: Path) -> None:
    """The two wheels share no file and hold all that git tracks, the two modules of C++, and nothing else."""
    one, other = files_in(fleet), files_in(simulator)
    assert not one & other, sorted(one & other)
    tree = {name.removeprefix("src/") for name in tracked() if name.startswith(PACKAGE)}
    built = (one | other) - tree
    assert tree <= one | other, sorted(tree - one - other)[:5]
    assert sorted(Path(name).name.split(".")[0] for name in built) == ["_core", "_ring"], sorted(built)


class Environment:
    """An empty environment of a Python, with a folder to work in."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return next((self.folder / "lib").glob("python3.*/site-packages"))

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints on both streams; it has to end with `code`."""
        program = str(self.folder / "bin" / command[0])
        done = subprocess.run([program, *command[1:]], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == code, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, *wheels: Path) -> None:
        """Wheels with what they depend on."""
        dist = str(wheels[0].parent)
        self.run(
            "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--find-links", dist,
            *map(str, wheels),
        )  # fmt: skip

    def uninstall(self, name: str) -> None:
        """One distribution goes."""
        self.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", name)

    def left(self) -> set[str]:
        """Files of the package that are there, but for what Python compiled."""
        found = (path for path in (self.packages / "windtunnel").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(self.packages).as_posix() for path in found}


def check_fleet_alone(env: Environment) -> None:
    """What works without the simulator, and what the rest says."""
    assert env.run("windtunnel-fleet", "--help").count("\n  ") > 10
    assert SIMULATOR_ALONE in env.run("windtunnel-fleet", "show", "out", code=2)
    assert SIMULATOR_ALONE in env.run("python", "-m", "windtunnel", "predict", JOB, code=2)
    assert SIMULATOR_ALONE in env.run("python", "-c", "import windtunnel; windtunnel.predict", code=1)
    assert version() in env.run("python", "-m", "windtunnel", "--version")
    assert "damaged" not in env.run("windtunnel-fleet", "checkpoints", "ls", ".")
    assert "nothing was recorded" in env.run("windtunnel-fleet", "run", "--", "true")


def check_training(env: Environment) -> None:
    """Trains with the torch of this environment: links to it and to what it needs, and to nothing else."""
    linked, waiting = env.folder / "torch", ["torch"]
    linked.mkdir()
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except importlib.metadata.PackageNotFoundError:  # of an extra, or of another system
            continue
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            if not (linked / top).exists() and not (env.packages / top).exists():
                (linked / top).symlink_to(found.locate_file(top))
        waiting += [name_of(one) for one in found.requires or () if "extra ==" not in one]
    (env.packages / "torch.pth").write_text(f"{linked}\n", encoding="utf-8")
    shutil.copy2(Path(__file__).with_name("train.py"), env.folder)
    print("windtunnel-fleet alone:", env.run("python", "-W", "ignore", "train.py").strip())


def check_prediction(env: Environment) -> None:
    """The same step times as in the tree, to the bit; both command lines."""
    answer = env.run("windtunnel", "predict", JOB, "--json", "-", "--quiet")
    env.run(
        "windtunnel",
        "collective",
        "--cluster",
        "h100-ib",
        "--gpus",
        "16",
        "--op",
        "all_reduce",
        "--bytes",
        "1M:1M",
        "--network",
        "packet",
    )
    code = f"import windtunnel as wt; print(*(wt.predict(wt.load(*job)).step_time_s for job in {JOBS!r}))"
    tree = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert (wheels := env.run("python", "-c", code)) == tree, (wheels, tree)
    assert json.loads(answer)["step_time_s"] == float(tree.split()[0])


def check_oracles(env: Environment, wheel: Path) -> None:
    """A verb that needs them says what to type, and works once they are installed; the wheel has all that git tracks."""
    assert files_in(wheel) == {name.removeprefix("oracles/") for name in files_of("oracles", tracked())}
    graph = env.folder / "ping.goal"
    graph.write_text("num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 1\n}\nrank 1 {\nl1: recv 8b from 0 tag 1\n}\n")
    command = ("windtunnel", "replay", str(graph), "--loggops", "")
    assert "pip install 'windtunnel[oracles]'" in env.run(*command, code=2)
    env.install(wheel)
    assert "Host 1: " in env.run(*command)
    env.uninstall("windtunnel-oracles")


def check_uninstalling(env: Environment, fleet: Path, simulator: Path) -> None:
    """Each goes alone and leaves the other whole."""
    assert env.left() == files_in(fleet) | files_in(simulator)
    env.uninstall("windtunnel")
    assert env.left() == files_in(fleet)
    env.run("windtunnel-fleet", "--help")
    env.install(simulator)
    env.uninstall("windtunnel-fleet")
    assert env.left() == files_in(simulator)
    env.uninstall("windtunnel")
    assert env.left() == set()


def main(folder: Path) -> None:
    """Every check on the wheels in `folder`/dist."""
    newest = next((found for minor in range(19, ABI3[1] - 1, -1) if (found := installed(minor))), None)
    tag = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}" if sys.version_info < ABI3 else "cp312-abi3"
    for python, wheels in ((Path(sys.executable), tag), (newest, "cp312-abi3")):
        if python is None or not list((folder / "dist").glob(f"*-{wheels}-*.whl")):
            print("no Python 3.12 or later here: the abi3 wheels were not tried", file=sys.stderr)
            continue
        fleet, simulator = (
            next((folder / "dist").glob(f"{name}-{version()}-{wheels}-*.whl")) for name in ("windtunnel_fleet", "windtunnel")
        )
        check_files(fleet, simulator)
        env = Environment(python, folder / f"venv-{wheels}")
        env.install(fleet)
        check_fleet_alone(env)
        if python == Path(sys.executable):
            check_training(env)
        env.install(simulator)
        check_prediction(env)
        check_oracles(env, next((folder / "dist").glob(f"windtunnel_oracles-{version()}-*.whl")))
        if python == Path(sys.executable):
            check_uninstalling(env, fleet, simulator)
        print(f"{wheels}: both wheels work in {env.run('python', '-VV').split(' (')[0].strip()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
