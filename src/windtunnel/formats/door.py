"""One door for every file that is not ours: what it is, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.importers import (
    ANYTHING,
    IMPORTERS,
    OWN_PREFIXES,
    TOGETHER,
    Importer,
    importers_of_packages,
    module_of,
)
from windtunnel.formats.reading import Context, ImporterModule, LinkingModule, Reading
from windtunnel.formats.text.lines import (
    copy_decoded,
    copy_without_prefix,
    name_originals,
    name_originals_in,
    prefix_of,
    without_prefix,
)


def importer_of(head: Head, name: str | None = None) -> Importer:
    """The first reader of the registry that recognises a head; the one called `name` where the user says which.

    UnknownName for a name that no reader has, SpecError for a file that none recognises.
    """
    if name is not None:
        named = {reader.name: reader for reader in (*IMPORTERS, *importers_of_packages())}
        if name not in named:
            raise UnknownName("--as", name, list(named))
        return named[name]
    found = _first_importer(head)
    if found is None or found.name not in OWN_PREFIXES:
        prefix = prefix_of(head)
        within = None if prefix is None else _first_importer(without_prefix(head, prefix))
        if within is not None and within.name not in ANYTHING:
            return within
    if found is not None:
        return found
    raise SpecError(
        str(head.path),
        "bytes of no known kind",
        "a file that `windtunnel catalog formats` lists",
        "`--as FORMAT` says which it is.",
    )


def importer_of_folder(path: Path) -> Importer | None:
    """The reader whose source is the folder as a whole; None for a folder of files, and for what is no folder."""
    if not path.is_dir():
        return None
    return next((one for one in IMPORTERS if one.reads == "folder" and module_of(one).recognises_folder(path)), None)


def _first_importer(head: Head) -> Importer | None:
    found = next((reader for reader in IMPORTERS if _recognises(reader, head)), None)
    if found is None or found.name in ANYTHING:
        return next((reader for reader in importers_of_packages() if _recognises(reader, head)), found)
    return found


def _recognises(reader: Importer, head: Head) -> bool:
    if reader.reads == "folder":
        return False
    module = module_of(reader)
    if reader.reads == "table":
        return head.table is not None and bool(module.recognises_table(head.table))
    return bool(module.recognises(head))


def _reader(importer: Importer) -> ImporterModule:
    """The module that reads the importer's files: of a table, the one that reads configurations."""
    if importer.reads == "table":
        from windtunnel.formats.jobs import import_job

        return cast(ImporterModule, import_job)
    return cast(ImporterModule, module_of(importer))


def read_files(files: Sequence[str | Path], context: Context | None = None, name: str | None = None) -> Reading:
    """What the files of one source hold: one file, a script with what it is started with, or the files of a run's ranks; a
    directory stands for the files in it, without what `_drop_companion_files` takes out and `ignored` names.

    `name` says the format where content does not. Files of one source are of one format, or of two that belong together
    (`importers.TOGETHER`): SpecError where two differ.
    """
    if len(files) == 1 and " " in str(files[0]):
        from windtunnel.formats.jobs.scripts.script_call import call_of  # traces need no reader of scripts

        if (call := call_of(files[0])) is not None:
            return _reader(importer_of(head_of(call.script), name)).read([Path(files[0])], context or Context())
    if len(files) == 1 and (folder := importer_of_folder(Path(files[0]))) is not None and name in (None, folder.name):
        return _reader(folder).read([Path(files[0])], context or Context())
    paths = [path for given in files for path in list_files(Path(given))]
    if not paths:
        raise SpecError("FILE", "no file", "one file or more")
    with ExitStack() as stack:
        plain, copies = _unwrap_files(paths, name, stack)
        beside = _drop_companion_files(plain, [Path(given) for given in files], copies)
        try:
            reading = _read(plain, context or Context())
        except SpecError as error:
            if not copies:
                raise
            raise SpecError(name_originals_in(error.path, copies), error.got, error.allowed, error.hint) from None
        if beside:
            reading = replace(reading, ignored=(*reading.ignored, f"beside them: {', '.join(beside)}"))
        return name_originals(reading, copies) if copies else reading


def _drop_companion_files(files: dict[Importer, list[Path]], given: Sequence[Path], copies: Mapping[Path, Path]) -> list[str]:
    """Takes out what lies in a given directory beside its ranks, and its names: texts that no reader of a trace or log knows, and
    files of other formats where most are of one."""
    texts = [importer for importer in files if importer.name in ANYTHING]
    beside = texts if len(texts) < len(files) else []
    kept = {importer: listed for importer, listed in files.items() if importer not in beside}
    if _pair(kept) is None and _main(kept) is None:
        most = max(kept, key=lambda importer: len(kept[importer]))
        if 2 * len(kept[most]) > sum(len(listed) for listed in kept.values()):
            beside = [importer for importer in files if importer is not most]
    if not all(copies.get(path, path).parent in given for importer in beside for path in files[importer]):
        return []
    return [copies.get(path, path).name for importer in beside for path in files.pop(importer)]


def _unwrap_files(paths: Sequence[Path], name: str | None, stack: ExitStack) -> tuple[dict[Importer, list[Path]], dict[Path, Path]]:
    """The files by importer; a copy stands for a file whose text is wrapped. And the copies with what they are of."""
    by_importer: dict[Importer, list[Path]] = {}
    copies: dict[Path, Path] = {}
    for path in paths:
        head, copy = head_of(path), path
        if head.encoding:
            copy = copy_decoded(path, head.encoding, stack)
        importer = importer_of(head, name)
        prefix = None if importer.name in (*OWN_PREFIXES, *ANYTHING) else prefix_of(head)
        if prefix is not None and _recognises(importer, without_prefix(head, prefix)):
            copy = copy_without_prefix(copy, prefix, stack)
        if copy != path:
            copies[copy] = path
        by_importer.setdefault(importer, []).append(copy)
    return by_importer, copies


def _read(by_importer: dict[Importer, list[Path]], context: Context) -> Reading:
    if (pair := _pair(by_importer)) is not None:
        first, second = pair
        return cast(LinkingModule, module_of(first)).read_with(by_importer[first], by_importer[second], context)
    importer = _main(by_importer)
    if importer is None:
        kinds = " and ".join(f"{listed[0].name} ({one.name})" for one, listed in by_importer.items())
        raise SpecError("FILE", kinds, "files of one format", "Name those of one format, or import them one by one.")
    return _reader(importer).read(by_importer[importer], context)


def _pair(files: Mapping[Importer, list[Path]]) -> tuple[Importer, Importer] | None:
    """Two importers whose files belong together, the one that links them first."""
    if len(files) != 2:
        return None
    first, second = files
    for one, other in ((first, second), (second, first)):
        if TOGETHER.get(one.name) == other.name:
            return one, other
    return None


def _main(files: Mapping[Importer, list[Path]]) -> Importer | None:
    """The importer of all files, or the one whose files the others accompany; None where two have nothing to do with each other."""
    for importer in files:
        beside: frozenset[str] = getattr(module_of(importer), "COMPANIONS", frozenset())
        if all(other is importer or other.name in beside for other in files):
            return importer
    return None


def list_files(path: Path) -> list[Path]:
    """A file as it is; the files of a directory by name, without hidden ones. FileError for a directory without files."""
    if not path.is_dir():
        return [path]
    inside = sorted((p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")), key=lambda p: _natural(p.name))
    if not inside:
        raise FileError(str(path), "a directory without files", "a file, or a directory with the files of one source")
    return inside


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts `rank10` after `rank9`."""
    import re

    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d{1,18})", name)]
