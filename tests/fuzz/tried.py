"""One file through its reader and through what a user does next with it, within limits of time and memory."""

from __future__ import annotations

import json
import resource
import signal
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from corpus import ROOT

SECONDS = 10
"""Of CPU time, so that a busy machine is no failure."""
MEMORY = 2 * 2**30
MOST_TASKS = 20_000
"""Of a graph that is replayed."""
CLUSTER = "h100-ib"
MOST_RECIPES = 3


def limit() -> None:
    """Puts the limits on this process. Threads of libraries reserve address space, which is allowed for."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY + 4 * 2**30, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, _too_long)


def failed(path: Path, number: str) -> bool:
    """Whether the file made a reader fail: it ended otherwise than with a result or an error of ours."""
    from windtunnel.base.errors import WindtunnelError

    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        read(path)
    except WindtunnelError:
        return False
    except BaseException as error:  # whatever it is, it is a failure of ours
        signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(error, KeyboardInterrupt):
            raise
        kept = ROOT / "out" / "fuzz"
        kept.mkdir(parents=True, exist_ok=True)
        target = kept / f"{number}-{path.name}"
        target.write_bytes(path.read_bytes())
        print(f"FAILED {target.relative_to(ROOT)}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        print("".join(traceback.format_tb(error.__traceback__)[-2:]), flush=True)
        return True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return False


def read(path: Path) -> None:
    """Reads a file as `import` does; then breaks a run down, replays a graph, and writes a cluster and what is shown."""
    from windtunnel.formats.door import importer_of, read_files
    from windtunnel.formats.head import head_of
    from windtunnel.formats.importers import CONFIGURATIONS
    from windtunnel.formats.reading import Content, Context

    if path.suffix == ".py":
        _recipe(path)
        return
    name = importer_of(head_of(path)).name
    if name in CONFIGURATIONS:
        _configuration(path)
        return
    reading: Any = read_files([path], Context(cluster=CLUSTER), name)
    json.dumps(reading.as_dict(), default=str)
    if name == "kineto":
        _replayed_by_kernels(path)
    if reading.content is Content.RUN:
        from windtunnel.runs.report import as_json, report_of

        as_json(report_of(reading.value))
    elif reading.content is Content.GRAPH:
        _replayed(reading.value)
    elif reading.content is Content.CLUSTER and hasattr(reading.value, "model_dump"):
        from windtunnel.spec.loading.files import toml_lines

        toml_lines(reading.value.model_dump(mode="json", exclude_none=True))


def _configuration(path: Path) -> None:
    """As a part of a job, and as a job on a machine of the catalogue."""
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.formats.jobs.part_of_a_job import part_alone
    from windtunnel.jobs.load import load_described_job as job_of

    with suppress(WindtunnelError):
        part_alone(path)
    job_of(str(path), ["cluster.gpus=64"], CLUSTER)


def _recipe(path: Path) -> None:
    """Each of a file's first recipes, as a job on a machine of the catalogue."""
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.formats.jobs.recipes.reader import module_of, recipes_of
    from windtunnel.formats.text.source import read_source
    from windtunnel.jobs.load import load_described_job as job_of

    for name in recipes_of(module_of(*read_source(path), path))[:MOST_RECIPES]:
        with suppress(WindtunnelError):
            job_of(f"{path}:{name}", ["cluster.gpus=64"], CLUSTER)


def _replayed(graph: Any) -> None:
    from windtunnel.replay import replay

    if 0 < len(graph) <= MOST_TASKS and graph.ranks <= 64 and int(graph.numbers.max()) < 512:
        replay(graph, _cluster()).as_dict()


def _replayed_by_kernels(path: Path) -> None:
    """A profiler's trace as `replay --compute kernels` reads it."""
    from windtunnel.formats.reading import Context
    from windtunnel.formats.traces.pytorch_et.shaped import read_shaped
    from windtunnel.replay import ReplayOptions, replay

    graph, _ = read_shaped([path], Context())
    if 0 < len(graph) <= MOST_TASKS and graph.ranks <= 64 and int(graph.numbers.max()) < 512:
        replay(graph, _cluster(), ReplayOptions(compute="kernels")).as_dict()


@cache
def _cluster() -> Any:
    from windtunnel.spec.loading.load import load_cluster

    return load_cluster(CLUSTER, ["gpus=512"])


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU time")
