"""Presets of congestion control: what is loaded, how it is overridden, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.engine.packet import controls
from windtunnel.network.congestion import Ecn, load_congestion, presets

GB = 1e9 / 8


def test_the_presets_that_the_docs_promise() -> None:
    dcqcn = {"dcqcn", "dcqcn-paper", "dcqcn-connectx", "dcqcn-hpcc-fork", "dcqcn-simai"}
    promised = dcqcn | {"none", "hpcc", "swift", "timely", "megascale", "nscc"}
    assert promised <= set(presets())


@pytest.mark.parametrize("name", presets())
def test_every_value_of_a_preset_has_a_source(name: str) -> None:
    preset = load_congestion(name)
    assert preset.id == name and preset.source
    known = [p.name for p in controls()[preset.algorithm].parameters]
    assert list(preset.parameters) == known
    if name != "none":
        assert preset.given == set(known) and all(preset.sources[p] for p in known)


@pytest.mark.parametrize("name", ["none", "dcqcn", "hpcc", "swift", "timely", "nscc"])
def test_the_preset_of_an_algorithm_s_name_is_the_core_s_default(name: str) -> None:
    defaults = {p.name: p.default for p in controls()[name].parameters}
    assert load_congestion(name).parameters == pytest.approx(defaults, rel=1e-12)


def test_dcqcn_is_connectx_under_thresholds_that_scale() -> None:
    one, nic = load_congestion("dcqcn"), load_congestion("dcqcn-connectx")
    assert (one.parameters, one.notification) == (nic.parameters, nic.notification)
    assert one.marking(50 * GB) == load_congestion("dcqcn-hpcc-fork").marking(50 * GB) == Ecn(50 * GB, 200e3, 800e3, 0.2)
    assert one.notification == ("cnp", 4e-6)
    assert one.parameters["rai"] == 5e6 / 8 and one.parameters["bytes"] == 64 * 32767
    assert one.parameters["timer"] == pytest.approx(300e-6)
    assert nic.marking(50 * GB) == Ecn(50 * GB, 150e3, 1500e3, 1.0) and nic.marking(400 * GB) == Ecn(400 * GB, 150e3, 1500e3, 1.0)


def test_marking_follows_the_port_s_rate() -> None:
    fork = load_congestion("dcqcn-hpcc-fork")
    assert fork.notification == ("ack", 0.0)
    assert fork.marking(400 * GB) == Ecn(400 * GB, 1600e3, 6400e3, 0.2)
    assert fork.marking(25 * GB) == Ecn(25 * GB, 100e3, 400e3, 0.2)
    simai = load_congestion("dcqcn-simai")
    assert simai.marking(200 * GB) == Ecn(200 * GB, 300e3, 1200e3, 0.8)
    assert simai.marking(400 * GB) == Ecn(400 * GB, 800e3, 3200e3, 0.2)
    assert simai.marking(800 * GB) == Ecn(800 * GB, 1600e3, 6400e3, 0.2)  # as far from 400 as from 1600: the slower one
    conweave = load_congestion("dcqcn-conweave")
    assert conweave.marking(400 * GB) == Ecn(400 * GB, 100e3, 400e3, 0.2) and conweave.parameters["scale"] == 25 * GB
    assert load_congestion("nscc").notification == ("ack", 0.0)
    assert load_congestion("hpcc").marking(50 * GB) is None and load_congestion("hpcc").notification == ("none", 0.0)


def test_overrides_carry_units() -> None:
    made = load_congestion("dcqcn:rai=40Mb/s,g=0.004,timer=55us,bytes=10MB,clamp=on,rhai=0")
    assert made.parameters["rai"] == 5e6 and made.parameters["g"] == 0.004 and made.parameters["clamp"] == 1.0
    assert made.parameters["timer"] == pytest.approx(55e-6) and made.parameters["bytes"] == 10e6 and made.parameters["rhai"] == 0.0
    assert made.sources["rai"] == "given" and "mlxconfig" in made.sources["rmin"]
    assert load_congestion("dcqcn", {"rai": "40Mb/s"}).parameters["rai"] == 5e6
    assert load_congestion("dcqcn:rai=40Mb/s", {"rai": "80Mb/s"}).parameters["rai"] == 10e6
    assert load_congestion("none:window=1MB").parameters == {"window": 1e6}


def test_marking_can_be_given() -> None:
    made = load_congestion("hpcc:kmin=100KB,kmax=400KB")
    assert made.marking(10 * GB) == Ecn(10 * GB, 100e3, 400e3, 1.0) and made.marking(400 * GB) == Ecn(400 * GB, 100e3, 400e3, 1.0)
    assert load_congestion("dcqcn-simai:kmin=1KB,kmax=2KB").ecn == (Ecn(0.0, 1e3, 2e3, 0.2),)
    assert load_congestion("dcqcn-simai:kmin=1KB,kmax=2KB,pmax=0.5").ecn == (Ecn(0.0, 1e3, 2e3, 0.5),)


def test_a_file_starts_from_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "nic.toml"
    marking = '[[ecn]]\nrate = "400Gb/s"\nkmin = "1MB"\nkmax = "2MB"\npmax = 0.1\n'
    file.write_text('base = "dcqcn-connectx"\n[parameters]\nrai = "40Mb/s"\n' + marking)
    table = {"id": "nic", "base": "dcqcn", "parameters": {"rai": "40Mb/s"}}
    for made in (load_congestion(file), load_congestion(str(file)), load_congestion(table)):
        assert made.id == "nic" and made.parameters["rai"] == 5e6 and made.parameters["rhai"] == 50e6 / 8
    assert load_congestion(file).marking(200 * GB) == Ecn(200 * GB, 0.5e6, 1e6, 0.1)
    assert load_congestion(f"{file}:g=0.5").parameters["g"] == 0.5


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("dcqnc", UnknownName, "Did you mean 'dcqcn'"),
        ("dcqcn:raj=1Mb/s", UnknownName, "Did you mean 'rai'"),
        ("hpcc:kmin=1KB", SpecError, "kmin and kmax together"),
        ("dcqcn:kmin=2KB,kmax=1KB", SpecError, "at least kmin"),
        ("dcqcn:kmin=2KB,kmax=3KB,pmax=1.5", SpecError, "0 to 1"),
        ("dcqcn:rai=40", SpecError, "a bandwidth"),
        ("dcqcn:rai=-1Mb/s", SpecError, "a bandwidth"),
        ("dcqcn:timer=0", SpecError, "1e-09 to 10 s"),
        ("dcqcn:g=2", SpecError, "0 to 1"),
        ("dcqcn:g=nan", SpecError, "0 to 1"),
        ("dcqcn:g=x", SpecError, "a number"),
        ("dcqcn:clamp=2", SpecError, "true or false"),
        ("dcqcn:g", SpecError, "name=value"),
        ("dcqcn:", SpecError, "name=value"),
        ("dcqcn:g=0.1,g=0.2", SpecError, "once"),
        ("no-such-file.toml", FileError, "no such file"),
    ],
)  # fmt: skip
def test_bad_input_is_named(text: str, error: type[SpecError], says: str) -> None:
    with pytest.raises(error) as caught:
        load_congestion(text)
    assert says in str(caught.value) and "cc" in str(caught.value) or "no-such-file" in str(caught.value)


_ROW = {"rate": "400Gb/s", "kmin": "1KB", "kmax": "2KB", "pmax": 1}


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"algorithm": "dctcp"},
        {"algorithm": 3},
        {"base": "dctcp"},
        {"base": 3},
        {"base": "dcqcn", "gain": 1},
        {"base": "dcqcn", "parameters": 3},
        {"base": "dcqcn", "parameters": {"g": {"source": "no value"}}},
        {"base": "dcqcn", "parameters": {"clamp": [1]}},
        {"base": "dcqcn", "ecn": {"kmin": 1}},
        {"base": "dcqcn", "ecn": [3]},
        {"base": "dcqcn", "ecn": [{"rate": "400Gb/s", "kmin": "1KB"}]},
        {"base": "dcqcn", "ecn": [{**_ROW, "rate": 400}]},
        {"base": "dcqcn", "ecn": [_ROW, {"kmin": "1KB", "kmax": "2KB", "pmax": 1}]},
        {"base": "dcqcn", "ecn": [{**_ROW, "pmax": "often"}]},
        {"base": "dcqcn", "ecn": [{**_ROW, "colour": "red"}]},
        {"algorithm": "hpcc", "parameters": {"eta": 10**400}},
    ],
)
def test_bad_tables_are_named(table: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        load_congestion(table)
    with pytest.raises(SpecError):
        load_congestion(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"parameters": {}}, "cc.algorithm: got nothing; allowed: the name of an algorithm: none, dcqcn"),
        ({"base": "dcqcn", "parameter": {}}, "Did you mean 'parameters'"),
        ({"base": "dcqcn", "parameters": {"g": {"valu": 1}}}, "Did you mean 'value'"),
        ({"base": "dcqcn", "ecn": [{**_ROW, "kmi": 1}]}, "Did you mean 'kmin'"),
        ({"base": "dcqcn", "ecn": [{**_ROW, "kmax": "1B"}]}, "cc.ecn[0].kmax: got '1B'; allowed: at least kmin, 1000 B"),
        ({"base": "dcqcn", "ecn": [{**_ROW, "pmax": 2}]}, "a probability, 0 to 1"),
    ],
)
def test_a_wrong_table_says_where_and_what_is_allowed(table: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_congestion(table)
    assert says in str(caught.value)


@given(st.one_of(st.text(max_size=30), st.from_regex(r"(dcqcn|hpcc|swift|none):[a-z_]{1,6}=[0-9a-zA-Z./-]{0,8}", fullmatch=True)))
def test_any_text_loads_or_is_refused_with_one_error(text: str) -> None:
    try:
        assert load_congestion(text).algorithm in controls()
    except WindtunnelError as error:
        assert "\n" not in str(error) or "\n" in text
