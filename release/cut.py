"""Cuts the tree into three: the sources of `windtunnel-fleet`, `windtunnel` and `windtunnel-oracles`, each a project that pip
builds. They install side by side: no file is in two of them.

`python release/cut.py FOLDER` writes FOLDER/windtunnel_fleet-VERSION/, FOLDER/windtunnel-VERSION/ and
FOLDER/windtunnel_oracles-VERSION/ from the files of git.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, CORE = "src/windtunnel/", "cpp/"
PARTS = ("fleet", "simulator", "oracles")
BESIDE_CORE = ("cpp/tests/", "cpp/fuzz/", "cpp/bench/")
"""C++ that no module is made of."""
COMMON = ("CMakeLists.txt", "LICENSE")
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link or an image (the first group is `!`) whose target is a file of the repository."""


def settings() -> dict[str, Any]:
    """What release/distributions.toml says."""
    return tomllib.loads((ROOT / "release" / "distributions.toml").read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    """pyproject.toml of the whole tree."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def version() -> str:
    """The version of all distributions."""
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / PACKAGE / "base" / "version.py").read_text(encoding="utf-8"))
    assert found is not None
    return found.group(1)


def tracked() -> list[str]:
    """Files of both packages and of the C++ core, from git: also new ones, not those that are ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", PACKAGE, CORE, settings()["oracles"]["package"]]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in set(listed) if (ROOT / name).is_file() and not name.startswith(BESIDE_CORE))


def files_of(part: str, names: Sequence[str]) -> list[str]:
    """Those of `names` that belong to a part, one of PARTS: each of a package to one, C++ that two build to both."""
    fleet, oracles = settings()["fleet"], settings()["oracles"]["package"]

    def of_fleet(name: str) -> bool:
        folder, patterns = (PACKAGE, fleet["files"]) if name.startswith(PACKAGE) else (CORE, fleet["cpp"])
        return any(fnmatch(name, folder + pattern) for pattern in patterns)

    if part == "oracles":
        return [name for name in names if name.startswith(oracles)]
    if part == "fleet":
        return [name for name in names if of_fleet(name)]
    return [name for name in names if name.startswith(CORE) or not (of_fleet(name) or name.startswith(oracles))]


def name_of(requirement: str) -> str:
    """The name in a requirement such as `numpy>=1.26`."""
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower()


def dependencies(part: str) -> tuple[list[str], dict[str, list[str]]]:
    """Requirements and extras of a part, with the versions that pyproject.toml states."""
    whole, distributions = project()["project"], settings()
    extras: dict[str, list[str]] = whole["optional-dependencies"]
    fleet = distributions["fleet"]
    if part == "simulator":
        same = f"{fleet['name']}=={version()}"
        users = {name: extras[name] for name in ("torch", "hf", "lightning", "search")}
        others = {"fleet": [same.replace("==", "[server]==")], "oracles": [f"{distributions['oracles']['name']}=={version()}"]}
        return [same, *whole["dependencies"]], {**users, **others}
    if part == "oracles":
        return [f"{distributions['simulator']['name']}=={version()}"], {}
    known = {name_of(one): one for one in [*whole["dependencies"], *(one for extra in extras.values() for one in extra)]}

    def stated(asked: str) -> list[str]:
        return extras[asked.strip("[]")] if asked.startswith("[") else [known[asked]]

    return [known[one] for one in fleet["dependencies"]], {
        name: [one for item in asked for one in stated(item)] for name, asked in fleet["extras"].items()
    }


def readable_alone(text: str, repository: str, tag: str) -> str:
    """A README for PyPI: links into the tree lead to the repository; without one, their text stays and images go."""

    def moved(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if repository:
            return f"{image}[{label}]({repository}/{'raw' if image else 'blob'}/{tag}/{target})"
        return "" if image else label

    return LINK.sub(moved, text)


def pyproject_of(part: str) -> str:
    """The pyproject.toml of a part, as text."""
    whole, distributions = project(), settings()
    stated, part_stated = whole["project"], distributions[part]
    needs, extras = dependencies(part)
    lines = [
        "[build-system]",
        f"requires = {json.dumps(whole['build-system']['requires'])}",
        'build-backend = "scikit_build_core.build"',
        "",
    ]
    lines += ["[project]", f"name = {json.dumps(part_stated['name'])}", f'version = "{version()}"']
    lines += [f"description = {json.dumps(part_stated.get('description', stated['description']))}", 'readme = "README.md"']
    lines += [
        f"{key} = {json.dumps(stated[key])}" for key in ("license", "license-files", "requires-python", "classifiers", "keywords")
    ]
    lines += [f"authors = [{', '.join(_table(author) for author in stated['authors'])}]", f"dependencies = {json.dumps(needs)}", ""]
    lines += ["[project.optional-dependencies]", *(f"{name} = {json.dumps(items)}" for name, items in extras.items()), ""]
    if "script" in part_stated:
        lines += ["[project.scripts]", f"{part_stated['name']} = {json.dumps(part_stated['script'])}", ""]
    if distributions["repository"]:
        at = distributions["repository"]
        urls = {"Repository": at, "Issues": f"{at}/issues", "Changelog": f"{at}/blob/v{version()}/CHANGELOG.md"}
        lines += ["[project.urls]", *(f"{name} = {json.dumps(url)}" for name, url in urls.items()), ""]
    if part == "oracles":
        packages = [part_stated["package"].rstrip("/")]
        lines += ["[tool.scikit-build]", "wheel.cmake = false", 'wheel.py-api = "py3"', f"wheel.packages = {json.dumps(packages)}"]
        return "\n".join(lines) + "\n"
    build = whole["tool"]["scikit-build"]
    lines += [
        "[tool.scikit-build]",
        'minimum-version = "build-system.requires"',
        f"cmake.version = {json.dumps(build['cmake']['version'])}",
    ]
    lines += [
        'cmake.build-type = "Release"',
        'wheel.packages = ["src/windtunnel"]',
        f"wheel.py-api = {json.dumps(build['wheel']['py-api'])}",
    ]
    lines += [f"cmake.define.WINDTUNNEL_PART = {json.dumps(part_stated['part'])}"]
    return "\n".join(lines) + "\n"


def _table(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + "}"


def cut(folder: Path) -> dict[str, Path]:
    """The trees of all parts, written anew below `folder`."""
    trees: dict[str, Path] = {}
    names, distributions = tracked(), settings()
    for part in PARTS:
        stated = distributions[part]
        tree = trees[part] = folder / f"{stated['name'].replace('-', '_')}-{version()}"
        shutil.rmtree(tree, ignore_errors=True)
        for name in (*(COMMON if part != "oracles" else ("LICENSE",)), *files_of(part, names)):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
        readme = readable_alone((ROOT / stated["readme"]).read_text(encoding="utf-8"), distributions["repository"], f"v{version()}")
        (tree / "README.md").write_text(readme, encoding="utf-8")
        (tree / "pyproject.toml").write_text(pyproject_of(part), encoding="utf-8")
    return trees


if __name__ == "__main__":
    for made in cut(Path(sys.argv[1]).absolute()).values():
        print(made)
