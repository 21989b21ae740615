"""Files of sends, graphs and flows that are wrong end in one message that names the field, soon and in little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.network.fabrics import load_graph
from windtunnel.network.flows.flow_list import read_flows
from windtunnel.network.lanes.send_files import read_sends
from windtunnel.network.nccl.settings import parse_settings

HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("s.json", f'[{{"src": 0, "dst": 1, "bytes": {HUGE}}}]', FileError, "JSON"),
        ("s.toml", f"size = {HUGE}", FileError, "TOML"),
        ("s.toml", f"[[sends]]\nsrc = 0\ndst = 1\nbytes = 0x{'f' * 5000}", SpecError, r"sends\[0\]\.bytes: got a int too large"),
        ("s.json", '{"size": 1e-300, "sends": [{"src": 0, "dst": 1, "bytes": 8}]}', SpecError, "size: got 1e-300"),
        ("s.json", '{"size": Infinity, "sends": [{"src": 0, "dst": 1, "bytes": 8}]}', SpecError, "size: got inf"),
        (
            "s.csv",
            "src,dst,bytes,channel\n0,1,8,4294967296",
            SpecError,
            r"channel: got '4294967296'; allowed: a whole number from 0",
        ),
        ("s.csv", "src,dst,bytes\n0,4294967296,8", SpecError, r"dst: got '4294967296'"),
        ("s.csv", "src,dst,bytes,rate\n0,1,8,1e-300", SpecError, "rate: got '1e-300'; allowed: a number from 1 to"),
        ("s.csv", "src,dst,bytes,begin_s\n0,1,8,inf", SpecError, "begin_s: got 'inf'"),
        ("s.json", '[{"src": 0, "dst": 1, "bytes": [1]}]', SpecError, r"bytes: got \[1\]"),
    ],
)
def test_sends_out_of_bounds_are_named(tmp_path: Path, name: str, text: str, error: type[Exception], said: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(error, match=said):
        read_sends(str(file))


def test_steps_that_make_too_many_waits_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("step,src,dst,bytes\n" + "".join(f"{i},{i % 2},{1 - i % 2},8\n" for i in range(8000)))
    with pytest.raises(SpecError, match="sends.step: got 16000000"):
        read_sends(str(file))


def test_sends_do_not_scale_without_bound(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"size": 1, "sends": [{"src": 0, "dst": 1, "bytes": 1000000000000}]}')
    with pytest.raises(SpecError, match="size: got 1"):
        read_sends(str(file)).scale(2.0**40)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"nodes": [{"name": "a", "kind": []}], "links": []}', r"nodes\[0\]\.kind"),
        ('{"nodes": [{"name": "a", "count": 1e400}], "links": []}', r"nodes\[0\]\.count"),
        ('{"nodes": [{"name": "a", "kind": "host", "site": []}], "links": [1]}', r"nodes\[0\]\.site"),
        ('{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"from": [], "to": "b", "rate": "1Gb/s"}]}', r"links\[0\]\.from"),
        ('{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"from": "a", "to": "b", "rate": []}]}', r"links\[0\]\.rate"),
        (
            '{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"from": "a", "to": "b", "rate": "1Gb/s"}],'
            ' "endpoints": [{"node": "a", "nics": 5}]}',
            r"endpoints\[0\]\.nics: got 5; allowed: a list",
        ),
    ],
)
def test_graphs_with_values_of_another_type_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "g.json"
    file.write_text(text)
    with pytest.raises(SpecError, match=said):
        load_graph(str(file))


@pytest.mark.parametrize("read", [load_graph, lambda path: read_flows(path, 8), read_sends])
def test_devices_and_folders_are_refused(tmp_path: Path, read) -> None:
    device, folder = tmp_path / "zero.json", tmp_path / "folder.json"
    device.symlink_to("/dev/zero")
    folder.mkdir()
    with pytest.raises(FileError, match="a device"):
        read(str(device))
    with pytest.raises(FileError, match="a directory"):
        read(str(folder))
    with pytest.raises(FileError, match="no such file"):
        read(str(tmp_path / "nothing.json"))


@pytest.mark.parametrize("variables", [("MIN", "MAX"), ("MAX", "MIN")])
def test_a_channel_count_of_thousands_of_digits_is_refused(variables: tuple[str, str]) -> None:
    with pytest.raises(SpecError, match=f"NCCL_{variables[0]}_NCHANNELS"):
        parse_settings({f"NCCL_{variables[0]}_NCHANNELS": HUGE, f"NCCL_{variables[1]}_NCHANNELS": "1"})
