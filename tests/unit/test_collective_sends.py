"""Is a file of sends read as it says, written as it is read, and refused where it is wrong?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.cli import main
from windtunnel.engine.lanes import ALL
from windtunnel.network import flat_group
from windtunnel.network.lanes.build import join, lanes_of, lanes_of_sends
from windtunnel.network.lanes.send_files import Sends, csv_of, from_rows, read_sends, rows_of
from windtunnel.network.lanes.timing import seconds, transfers
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

CLUSTER = load_cluster("h100-ib")
RANKS = np.arange(64, dtype=np.int32)


def _read(tmp_path: Path, name: str, text: str) -> Sends:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_sends(str(tmp_path / name))


def test_csv_json_and_toml_say_the_same(tmp_path: Path) -> None:
    table = _read(tmp_path, "a.csv", "# size=2048\nsrc,dst,bytes,after\n0,1,1024,\n1,2,1024,0\n")
    listed = _read(
        tmp_path,
        "a.json",
        json.dumps(
            {"size": 2048, "sends": [{"src": 0, "dst": 1, "bytes": 1024}, {"src": 1, "dst": 2, "bytes": 1024, "after": [0]}]}
        ),
    )
    toml = _read(
        tmp_path,
        "a.toml",
        "size = 2048\n[[sends]]\nsrc = 0\ndst = 1\nbytes = 1024\n[[sends]]\nsrc = 1\ndst = 2\nbytes = 1024\nafter = [0]\n",
    )
    assert table == listed == toml
    assert table.ranks == 3
    assert table.scale(4096.0).sends[1].bytes == 2048


def test_steps_wait_for_earlier_ones_that_end_where_they_start() -> None:
    sends = from_rows(
        [
            {"step": 0, "src": 0, "dst": 1, "bytes": 8},
            {"step": 0, "src": 2, "dst": 3, "bytes": 8},
            {"step": 1, "src": 1, "dst": 0, "bytes": 8},
        ]
    )
    assert sends.sends[2].after == (0,)


@pytest.mark.parametrize(("rows", "words"), [
    ([{"src": 0, "dst": 0, "bytes": 8}], "to another one"),
    ([{"src": 0, "dst": 1, "bytes": 0}], "at least 1"),
    ([{"src": 0, "dst": -1, "bytes": 8}], "from 0"),
    ([{"src": 0, "dst": 1, "bytes": 8, "after": "7"}], "from 0 to 0"),
    ([{"src": 0, "dst": 1, "bytes": 8}, {"src": 0, "dst": 1, "bytes": 8, "after": [0]}], "end at rank 0"),
    ([{"src": 0, "dst": 1, "bytes": 8, "after": [1]}, {"src": 1, "dst": 0, "bytes": 8, "after": [0]}], "in a circle"),
    ([{"src": 0, "dst": 1, "bytes": 8, "rate": "nan"}], "from 1"),
    ([], "sends"),
])  # fmt: skip
def test_sends_that_cannot_be_run_are_named(rows: list[dict[str, object]], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        from_rows(rows)


def test_unknown_columns_name_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="bytes"):
        _read(tmp_path, "a.csv", "src,dst,byte\n0,1,8\n")
    with pytest.raises(FileError):
        _read(tmp_path, "a.json", "{")
    with pytest.raises(FileError):
        read_sends(str(tmp_path / "none.csv"))
    with pytest.raises(FileError):
        read_sends("a.txt")


@pytest.mark.parametrize(
    ("algorithm", "size"), [("ring", 1e6), ("tree", 3e7), ("halving_doubling", 1e6), ("nvls", 1e7), ("hierarchical", 1e6)]
)
def test_a_listed_algorithm_reads_back_to_the_same_lanes(tmp_path: Path, algorithm: str, size: float) -> None:
    gpus = 8 if algorithm == "nvls" else 16
    group = flat_group(CLUSTER, gpus)
    made = lanes_of(CLUSTER, Comm.ALL_REDUCE, size, RANKS[:gpus], group, algorithm=algorithm, switches=RANKS[gpus : gpus + 1])
    listing = transfers(made.lanes, made.pattern.channel)
    again = _read(tmp_path, "a.csv", csv_of(listing, gpus))
    assert from_rows(rows_of(listing, gpus)).sends == again.sends
    back = lanes_of_sends(CLUSTER, Comm.ALL_REDUCE, size, again, RANKS[:gpus], group, switches=RANKS[gpus : gpus + 1])
    assert len(back.lanes) == len(made.lanes)
    assert sorted(back.lanes.bytes.tolist()) == sorted(made.lanes.bytes.tolist())
    assert seconds(back.lanes) == pytest.approx(seconds(made.lanes), rel=1e-9)


def test_what_show_transfers_writes_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "sends.json"
    call = ["collective", "-c", "h100-ib", "-n", "8", "-b", "1M", "--json"]
    assert main([*call, str(path), "-a", "ring", "--show-transfers"]) == 0
    assert main([*call, str(tmp_path / "rows.json"), "-a", str(path)]) == 0


def test_sends_that_do_not_move_on_together_stay_apart() -> None:
    # The second send of 0 -> 1 waits for the first of 2 -> 0, the third for none: no one lead says that.
    rows = [
        {"src": 2, "dst": 0, "bytes": 8, "after": []},
        {"src": 0, "dst": 1, "bytes": 8, "after": []},
        {"src": 0, "dst": 1, "bytes": 8, "after": [0]},
        {"src": 0, "dst": 1, "bytes": 8, "after": []},
    ]
    lines = join(from_rows(rows))
    assert len(lines.first) == 4
    assert lines.dep_lane.tolist() == [0]
    assert lines.dep_lead.tolist() == [ALL]


def test_a_listing_that_is_cut_short_is_not_written() -> None:
    made = lanes_of(CLUSTER, Comm.ALL_REDUCE, 1e6, RANKS[:8], flat_group(CLUSTER, 8), algorithm="ring")
    listing = transfers(made.lanes, made.pattern.channel, most=10)
    assert len(listing) == 10
    assert listing.total > 10
    with pytest.raises(SpecError):
        csv_of(listing, 8)


PROGRAM = """<algo name="ring" nchunksperloop="2" nchannels="1" proto="Simple" ngpus="2" coll="allreduce" inplace="1">
<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu></algo>"""


def test_a_program_of_msccl(tmp_path: Path) -> None:
    sends = _read(tmp_path, "ring.xml", PROGRAM)
    assert [(s.src, s.dst, s.after) for s in sends.sends] == [(0, 1, ()), (0, 1, (2,)), (1, 0, ()), (1, 0, (0,))]
    assert [s.bytes for s in sends.scale(1000.0).sends] == [500] * 4
    assert len(join(sends).first) == 2  # two lanes of two slices, each one behind the other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('ngpus="2"', 'ngpus="x"'),
        ('type="r"', 'type="q"'),
        ('recv="0"', 'recv="-1"'),
        ("<algo", "<algorithm"),
        ('depid="-1" deps="-1"', 'depid="5" deps="0"'),
    ],
)
def test_a_wrong_program_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(SpecError):
        _read(tmp_path, "ring.xml", PROGRAM.replace(old, new))


@pytest.mark.parametrize("size", [1, 2**50])
def test_a_file_states_a_size_from_one_byte_to_the_most(size: int, tmp_path: Path) -> None:
    assert _read(tmp_path, "a.csv", f"# size={size}\nsrc,dst,bytes\n0,1,8\n").size == size
