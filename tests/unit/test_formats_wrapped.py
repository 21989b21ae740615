"""Text with what launchers, terminals and editors put around it is read as the text itself."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats.door import importer_of, read_files
from windtunnel.formats.head import head_of

TOPOLOGY = (
    "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\n"
    "GPU0\t X \tNV12\tPIX\t0-31\n"
    "GPU1\tNV12\t X \tSYS\t0-31\n"
    "mlx5_0\tPIX\tSYS\t X \t\n"
)  # fmt: skip


NCCL_LOG = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "           8             2     float     sum      -1    28.57    0.00    0.00      0    28.35    0.00    0.00      0\n"
)


def prefixed(prefix: str) -> Callable[[str], bytes]:
    return lambda text: "".join(prefix + line + "\n" for line in text.splitlines()).encode()


@pytest.mark.parametrize(
    "wrapped",
    [
        prefixed("3: "),
        prefixed("[1,0]<stdout>:"),
        prefixed("[default0]:"),
        prefixed("[rank12]:"),
        prefixed("node-01: "),
        prefixed("worker-1  | "),
        prefixed("[pod/worker-0/pytorch] "),
        prefixed("2025-03-01T12:00:00.123456789Z "),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: "".join(f"\x1b[36m{line}\x1b[0m\n" for line in text.splitlines()).encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode() + b"\nbar \xe2\x96 cut\n",
    ],
)
def test_a_matrix_is_read_whatever_is_around_it(tmp_path: Path, wrapped: Callable[[str], bytes]) -> None:
    path = tmp_path / "topo.txt"
    path.write_bytes(wrapped(TOPOLOGY))
    reading = read_files([path])
    assert reading.format == "nvidia-smi-topo" and reading.facts["gpus"] == 2 and reading.facts["kinds"]["NV12"] == 2
    assert not any("windtunnel-" in note for note in (*reading.built, *reading.assumed, *reading.ignored, *reading.broken))


def test_keys_of_settings_are_no_prefix(tmp_path: Path) -> None:
    path = tmp_path / "meta.yaml"
    path.write_text("trial_name: SE\nrun_id: 0\ndp_size: 32\npp_size: 2\ntp_size: 1\nworld_size: 128\n")
    plain = importer_of(head_of(path)).name
    assert plain == "straggler" and read_files([path]).format == "straggler analysis"


def test_errors_name_the_user_s_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_bytes(b"\xef\xbb\xbf<topology>\n<object type='Machine'>\n")
    with pytest.raises(SpecError, match=str(path)):
        read_files([path], name="lstopo")


def test_bytes_of_no_kind(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(range(128, 256)) * 4)
    with pytest.raises(SpecError, match="bytes of no known kind"):
        read_files([path])


def test_texts_beside_the_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    (tmp_path / "notes.md").write_text("# Notes\n\nOf a machine that we have had for years.\n")
    (tmp_path / "config.yaml").write_text("some: thing\n")
    reading = read_files([tmp_path])
    assert reading.format == "nvidia-smi-topo" and reading.ignored == ("beside them: config.yaml, notes.md",)
    with pytest.raises(SpecError, match="one format"):
        read_files([tmp_path / "topo.txt", tmp_path / "config.yaml"])


def test_a_file_of_another_format_beside_the_ranks_of_a_folder(tmp_path: Path) -> None:
    """Most files of a folder are what it stands for; of two formats with as many files, neither is."""
    (tmp_path / "topo1.txt").write_text(TOPOLOGY)
    (tmp_path / "log.txt").write_text(NCCL_LOG)
    with pytest.raises(SpecError, match=r"log\.txt \(nccl-tests\) and topo1\.txt|topo1\.txt .* and log\.txt"):
        read_files([tmp_path])
    (tmp_path / "topo2.txt").write_text(TOPOLOGY)
    reading = read_files([tmp_path])
    assert reading.format == "nvidia-smi-topo" and reading.ignored[-1] == "beside them: log.txt"
