"""Which configurations of a folder load in one command: `python benchmarks/configurations.py FOLDER... [--on CLUSTER]`.

Prints, for each format, how many files there are and how many gave a job, and the message of each that did not. Files of a
simulator whose job is several (Calculon, SimuMax) are tried in every pair of a model and an execution that belong together.
Counted apart: sources whose own numbers contradict each other, which their framework refuses too, and diffusion models.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats import format_of_table
from windtunnel.formats.importers import IMPORTERS, MODEL_APART
from windtunnel.formats.jobs.recipes.reader import module_of, recipes_of
from windtunnel.formats.jobs.simulators import calculon, simumax
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.jobs.load import load_parts
from windtunnel.spec.loading.files import read_table

SUFFIXES = (".json", ".toml", ".yml", ".yaml", ".sh", ".py")
KINDS = ("ConfigContainer", "Trainer.Config")
"""What a recipe's function says that it returns."""
READERS = {"calculon": calculon.READER, "simumax": simumax.READER}


APART = (
    ("contradicts itself", re.compile(r"plan\.pp: got .* at most model\.layers|plan\.ep: got .* ranks of a stage")),
    ("contradicts itself", re.compile(r"_\d+gpu_.*plan\.global_batch: got .* multiple of micro_batch\*dp")),  # GPUs by its name
    ("is a diffusion model", re.compile(r"got '(flux-|Wan)|got 't5'")),
)
"""Why a source is no job of ours, by its name and message."""


def apart(what: str, message: str) -> str:
    """The reason to count a source apart; nothing for one that loads, or that a user expects to load."""
    return next((reason for reason, pattern in APART if message and pattern.search(f"{what} {message}")), "")


def kind(path: Path) -> str:
    """The format of a file, by its content where that is a table."""
    if path.suffix == ".sh":
        return "megatron" if "--num-layers" in path.read_text(errors="replace") else "other"
    if path.suffix == ".py":
        return "recipe"
    try:
        table = read_table(path)
    except WindtunnelError:
        return "unread"
    named = format_of_table(table)
    return named if named != "huggingface" or "model_type" in table else "other"


def recipes(path: Path) -> list[str]:
    """The recipes of a Python file that returns configurations of a decoder's pretraining or tuning."""
    text = path.read_text(errors="replace")
    module = module_of(text, str(path), path)
    returning = [
        name for name in recipes_of(module) if ast.unparse(module.functions[name].returns or ast.Constant("")).endswith(KINDS)
    ]
    return [f"{path}:{name}" for name in returning]


def tries(paths: list[Path], on: str, model: str) -> dict[str, list[tuple[str, str]]]:
    """Format -> (what was tried, the message or "")."""
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    parts: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in paths:
        named = kind(path)
        if named in READERS:
            parts[named, READERS[named].part(read_table(path))].append(path)
        elif named == "recipe":
            for source in recipes(path):
                results["recipe"].append((source, _message(lambda s=source: job_of(s, None, on))))
        elif named not in (*MODEL_APART, "other", "unread"):
            more = {"model": model} if named == "deepspeed" else {}
            results[named].append((str(path), _message(lambda p=path, m=more: job_of(str(p), None, on, **m))))
    for named in READERS:
        for first, second in product(parts[named, "model"], parts[named, "plan"]):
            others = [other.stem for other in parts[named, "model"] if other != first]
            if not second.name.startswith(first.stem) and any(second.name.startswith(other) for other in others):
                continue  # an execution that names another model
            pair = [str(first), str(second)]
            results[named].append((f"{first.name} {second.name}", _message(lambda p=pair: load_parts(p, None, on))))
    return results


def _message(load: Callable[[], object]) -> str:
    try:
        load()
    except WindtunnelError as error:
        return " ".join(str(error).split())
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--on", default="h100-ib")
    parser.add_argument("--model", default="llama3-8b", help="for configurations that name none (DeepSpeed)")
    arguments = parser.parse_args()
    paths = sorted(path for folder in arguments.folders for path in folder.rglob("*") if path.suffix in SUFFIXES)
    tables = ", ".join(one.name for one in IMPORTERS if one.reads == "table")
    print(f"{len(paths)} files; formats of tables: {tables}")
    for named, tried in sorted(tries(paths, arguments.on, arguments.model).items()):
        loaded = sum(1 for _, message in tried if not message)
        aside = sum(1 for what, message in tried if apart(what, message))
        count = max(1, len(tried) - aside)
        print(f"{named}: {loaded} of {count} ({100 * loaded / count:.1f} %); {aside} apart")
        for what, message in tried:
            if message:
                print(f"  {what}: {f'({reason}) ' if (reason := apart(what, message)) else ''}{message[:300]}", flush=True)


if __name__ == "__main__":
    main()
