"""Does a dataset come back as it was written, and is everything that cannot be refused in one readable message?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, SpecError, WindtunnelError
from windtunnel.records import (
    COLUMNS,
    DTYPES,
    OPS,
    PHASES,
    About,
    Dataset,
    concat,
    dataset,
    from_csv,
    merge,
    read,
    read_any,
    read_shape,
    to_csv,
    write,
    write_shape,
)
from windtunnel.records.kernel_dataset import KEY, about_text
from windtunnel.records.work import bytes_of, flops_of, visible_pairs

H100 = About(gpu="h100-sxm-80gb", device="NVIDIA H100 80GB HBM3", driver="570.1", libraries={"torch": "2.13.0"}, source="test")
GEMM: dict[str, Any] = {
    "level": "kernel",
    "op": "gemm",
    "name": "up",
    "phase": "forward",
    "dtype": "bf16",
    "mode": "eager",
    "batch": 1,
    "m": 4096,
    "n": 8192,
    "k": 4096,
    "seconds": 4e-4,
    "status": "ok",
    "source": "test",
}
"""275 GFLOP: 0.278 ms at H100's peak."""


def row(**changes: Any) -> dict[str, Any]:
    return {**GEMM, **changes}


def refusal(about: About = H100, *rows: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        dataset(about, rows)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "level": st.just("kernel"),
            "op": st.sampled_from(OPS),
            "name": st.text("abc, \"'\n", min_size=1, max_size=6),
            "phase": st.sampled_from(PHASES),
            "dtype": st.sampled_from(DTYPES),
            "mode": st.just("eager"),
            "status": st.just("ok"),
            "source": st.just("s"),
            "throttled": st.sampled_from([None, "", "power"]),
            "causal": st.sampled_from([None, True, False]),
            "n": st.one_of(st.none(), st.integers(0, 10**12)),
            "seconds": st.floats(1e-5, 3e-5),
        }
    ),
    max_size=8,
)


@given(ROWS)
def test_parquet_and_csv_give_back_what_they_got(rows: list[dict[str, Any]]) -> None:
    data = dataset(About(gpu="a chip", notes='two "words"'), rows)
    text = from_csv(to_csv(data), "text")
    assert text.about == data.about and text.table.equals(data.table)
    again = dataset(data.about, data.rows())
    assert again.table.equals(data.table)


def test_a_file_comes_back(tmp_path: Path) -> None:
    data = dataset(H100, [row(), row(status="oom", seconds=None, m=10**6)])
    write(data, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(to_csv(data), encoding="utf-8")
    for path in ("a.parquet", "a.csv"):
        found = read_any(tmp_path / path)
        assert found.about == H100 and found.table.equals(data.table)
    assert [r["m"] for r in read(tmp_path / "a.parquet").where(status="ok").rows()] == [4096]


@pytest.mark.parametrize("seconds", [0.0, -1e-3, float("nan"), float("inf"), None])
def test_times_that_are_none(seconds: float | None) -> None:
    message = refusal(H100, row(), row(name="down", seconds=seconds))
    assert "seconds of row 1 (gemm down, 4096 x 8192 x 4096, bf16 forward)" in message


def test_the_row_is_counted_from_the_files_first() -> None:
    """Rows without a time (out of memory) before the bad one count too."""
    assert "seconds of row 2" in refusal(H100, row(status="oom", seconds=None), row(), row(seconds=0.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"phase": "fwd"}, "phase of row 0"),
        ({"dtype": "float16"}, "dtype of row 0"),
        ({"op": "mlp"}, "op of row 0"),
        ({"level": "layer"}, "op of row 0"),
        ({"mode": "fast"}, "mode of row 0"),
        ({"name": None}, "name of row 0"),
        ({"m": -1}, "m of row 0"),
        ({"seconds_min": 0.4}, "seconds_min of row 0"),
        ({"seconds_max": 4e-7}, "seconds_max of row 0"),
        ({"status": "oom"}, "no time where status is oom"),
        ({"power_w": float("inf")}, "power_w of row 0"),
    ],
)
def test_cells_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(H100, row(**changes))


def test_milliseconds_and_microseconds_as_seconds() -> None:
    for factor in (1e3, 1e6):
        assert "Milliseconds or microseconds" in refusal(H100, row(), row(m=2048, seconds=2e-4 * factor))
    assert "not in seconds" in refusal(H100, row(seconds=4e-7))


def test_another_gpus_times_under_this_name() -> None:
    """0.4 ms is 687 TFLOP/s: fine for an H100, more than twice an A100's peak."""
    assert "the most that a100-sxm-80gb does" in refusal(About(gpu="a100-sxm-80gb"), row())
    copy = row(op="copy", name="copy", m=None, n=None, k=None, bytes=4.5e9, seconds=1e-3)
    assert "B/s from memory" in refusal(H100, copy)
    assert len(dataset(About(gpu="b200-sxm-180gb"), [copy])) == 1
    assert "is the GPU that prints 'NVIDIA H100 80GB HBM3'. Write it as --gpu h100-sxm-80gb." in refusal(
        About(gpu="h200-sxm-141gb", device="NVIDIA H100 80GB HBM3"), row()
    )
    assert "under the name h200-sxm-141gb" in refusal(About(gpu="h200-sxm-141gb", device="Some Chip"), row())
    for key, value in {"sms": 108.0, "memory": 40e9, "memory_bandwidth": 3.35e12, "peak.bf16": 312e12}.items():
        assert key in refusal(About(gpu="h200-sxm-141gb", datasheet={key: value}), row())


def test_a_smaller_gpus_times_under_a_larger_ones_name() -> None:
    """Twenty products at 90 % of an A100's peak are 28 % of an H100's; small ones prove nothing."""
    rows = [row(m=4096 + i, seconds=2 * (4096 + i) * 8192 * 4096 / 280e12) for i in range(20)]
    assert len(dataset(About(gpu="a100-sxm-80gb"), rows)) == 20
    assert "20 large products: got 'at best 28 % of peak" in refusal(About(gpu="h100-sxm-80gb"), *rows)
    assert len(dataset(About(gpu="h100-sxm-80gb"), [{**r, "m": r["m"] // 8, "seconds": r["seconds"] / 8} for r in rows])) == 20


def test_a_gpu_that_nobody_knows_is_bound_by_its_own_sheet() -> None:
    sheet = {"peak.bf16": 1e12, "memory_bandwidth": 1e11}
    assert "the most that cpu does" in refusal(About(gpu="cpu", datasheet=sheet), row())
    assert len(dataset(About(gpu="cpu", datasheet=sheet), [row(seconds=0.5)])) == 1
    assert "any GPU" in refusal(About(gpu="cpu"), row(seconds=1e-7))
    assert len(dataset(About(gpu="cpu"), [row(seconds=0.5)])) == 1


def test_repeats_may_differ_and_not_contradict() -> None:
    assert len(dataset(H100, [row(), row(seconds=5e-4)])) == 2
    message = refusal(H100, row(), row(m=64, seconds=1e-4), row(seconds=2e-3))
    assert "rows 0 and 2" in message and "write a file for each" in message.lower()


def test_repeats_become_their_median() -> None:
    """Three runs of 2, 3 and 7 with spread 1 each: mean 4, var = 1 + mean of (4, 1, 9)."""
    runs = [
        row(seconds=s, seconds_min=s - 1, seconds_max=s + 1, seconds_mean=s, seconds_std=1.0, repeats=5, model=m)
        for s, m in ((2.0, "a"), (7.0, "b"), (3.0, "a"))
    ]
    one, other = merge([*runs, row(m=1)], across=("model",))
    assert (one["seconds"], one["seconds_min"], one["seconds_max"], one["repeats"], one["model"]) == (3.0, 1.0, 8.0, 15, "a, b")
    assert one["seconds_mean"] == 4.0 and one["seconds_std"] == pytest.approx((1 + 14 / 3) ** 0.5)
    assert other == row(m=1) and len(merge(runs)) == 2


def test_profiles_are_never_mixed() -> None:
    one = dataset(H100, [row()])
    both = concat([one, dataset(About(**{**vars(H100), "source": "again"}), [row(m=64)])])
    assert len(both) == 2 and both.about.source == "test; again"
    for name, value in {"gpu": "h200-sxm-141gb", "driver": "1", "libraries": {"torch": "2.0"}}.items():
        other = Dataset(About(**{**vars(H100), name: value}), one.table)
        with pytest.raises(SpecError, match=f"dataset 1: about.{name}.*never mixed"):
            concat([one, other])
    with pytest.raises(SpecError):
        concat([])


def test_files_that_are_no_dataset(tmp_path: Path) -> None:
    data, path = dataset(H100, [row()]), tmp_path / "a.parquet"
    write(data, path)
    whole = path.read_bytes()
    later = json.loads(about_text(H100)) | {"version": 99}
    wrong: list[tuple[bytes | pa.Table, str]] = [
        (whole[: len(whole) // 2], "cut off"),
        (b"", "cut off"),
        (b"a,b\n1,2\n", "not Parquet"),
        (data.table.drop_columns(["seconds", "op"]), "no column op, seconds"),
        (data.table.append_column("gpu", pa.array(["a100"])), "unknown column gpu"),
        (data.table.set_column(11, "batch", pa.array(["many"])), "column types"),
    ]
    for content, words in wrong:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pq.write_table(content.replace_schema_metadata({KEY: about_text(H100).encode()}), path)
        with pytest.raises(FileError, match=words):
            read(path)
    for about, words in (
        (None, "profile import"),
        (b"{}", "profile import"),
        (b'{"gpu": 3}', "profile import"),
        (json.dumps(later).encode(), "schema version 99"),
    ):
        pq.write_table(data.table.replace_schema_metadata({KEY: about} if about else None), path)
        with pytest.raises(FileError, match=words):
            read(path)
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "nothing.parquet")
    with pytest.raises(FileError):
        write(data, tmp_path / "no" / "folder.parquet")


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_in_words(content: bytes) -> None:
    with pytest.raises(WindtunnelError):
        from_csv(content.decode("utf-8", errors="replace"), "text")


def test_shapes() -> None:
    assert write_shape({"hidden": 4096, "heads": 32, "norm": "rms"}) == "heads=32 hidden=4096 norm=rms"
    assert read_shape("heads=32 hidden=4096 norm=rms") == {"heads": 32, "hidden": 4096, "norm": "rms"}
    for text in ("heads", "heads=", "=3", "a=1 a=2"):
        with pytest.raises(SpecError):
            read_shape(text)
    with pytest.raises(SpecError):
        write_shape({"a b": 1})


def test_work_of_a_row() -> None:
    """(2 x 3) @ (3 x 5) in bf16 adding to fp32: 60 FLOP, 2 x (6 + 15) + 2 x 4 x 10 B."""
    product = row(m=2, n=5, k=3, accumulate=True, out_dtype="fp32")
    assert (flops_of(product), bytes_of(product)) == (60.0, 122.0)
    # two causal heads of 4 on 3 tokens see 6 of 9 pairs; q, o of two heads, k, v of the one they share
    head = row(op="attention", batch=2, m=3, n=3, k=4, heads_per_kv=2, causal=True)
    assert (flops_of(head), bytes_of(head)) == (2 * 8 * 2 * 6, 2 * 8 * (2 * 3 + 1 * 3))
    assert flops_of(row(**{**head, "phase": "backward"})) == 2.5 * 192
    assert bytes_of(row(op="norm", m=10, n=8, k=None)) == 2 * 2 * 80 and flops_of(row(op="norm")) is None
    assert bytes_of(row(op="elementwise")) is None


@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 30), st.booleans())
def test_visible_pairs_by_counting(queries: int, cached: int, window: int, causal: bool) -> None:
    keys = queries + cached
    seen = [min(window, cached + q + 1 if causal else keys) for q in range(queries)]
    assert visible_pairs(queries, keys, causal, window) == sum(seen)


def test_every_column_has_a_meaning() -> None:
    assert len({column.name for column in COLUMNS}) == len(COLUMNS) and all(column.meaning for column in COLUMNS)


def test_the_documented_columns_are_these() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "profile.md").read_text(encoding="utf-8")
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.type} | {'yes' if column.null else 'no'} | {column.meaning} |" in page
    assert sum(line.startswith("| `") and line.count("|") == 5 for line in page.splitlines()) == len(COLUMNS)
    for words in (OPS, PHASES, DTYPES):
        assert ", ".join(words) in page
