"""What a sweep tries, as one says it on the command line."""

from __future__ import annotations

import pytest

import fedfuse
from fedfuse.sweeps.space import (
    Choice,
    Range,
    Space,
    check_keys,
    from_facts,
    in_order,
    parse_parameter,
    parse_space,
    probes,
)
from fedfuse.types import FedfuseError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0.01..1", Range(0.01, 1)),
        ("0.01..1:log", Range(0.01, 1, log=True)),
        ("1e-4..1e-1:log", Range(1e-4, 1e-1, log=True)),
        (".5...75", Range(0.5, 0.75)),
        ("-1..1.5", Range(-1, 1.5)),
        ("1..20", Range(1, 20)),
        ("1..1024:log", Range(1, 1024, log=True)),
        ("100,500", Choice((100, 500))),
        ("0.1,1", Choice((0.1, 1))),
        ("sgd, adam", Choice(("sgd", "adam"))),
        ("true,false", Choice((True, False))),
        ("mlp:16:bn,mlp:16", Choice(("mlp:16:bn", "mlp:16"))),
        ("'a,b',c", Choice(("a,b", "c"))),
        ("[0.5, 0.75],[]", Choice(([0.5, 0.75], []))),
        ('{"cnn"=1, "resnet8"=2},cnn', Choice(({"cnn": 1, "resnet8": 2}, "cnn"))),
        ("../one.csv,../two.csv", Choice(("../one.csv", "../two.csv"))),
    ],
)
def test_a_range_or_a_choice(text: str, meant: Range | Choice) -> None:
    parsed = parse_parameter("key", text)
    assert parsed == meant
    assert parse_parameter("key", str(parsed)) == meant  # as sweep.toml says it
    assert from_facts(parsed.facts()) == meant  # as trials.json says it


def test_two_whole_ends_mean_whole_numbers() -> None:
    assert Range(1, 20).whole
    assert not Range(1, 20.0).whole
    assert not Range(0.5, 20).whole


@pytest.mark.parametrize(
    ("pair", "right"),
    [
        ("local.lr", "write KEY=LOW..HIGH"),
        ("=1..2", "write KEY=LOW..HIGH"),
        ("local.lr=", "write KEY=LOW..HIGH"),
        ("local.lr=0.1", "two or more values; add some, or fix this one with --set"),
        ("local.lr=1..0.1", "the low end must be less than the high end"),
        ("local.lr=1..1", "the low end must be less than the high end"),
        ("local.lr=0..1:log", "must start above 0; remove :log"),
        ("local.lr=0.1..fast", "must be numbers, as in 0.01..1"),
        ("local.lr=..1", "must be numbers, as in 0.01..1"),
        ("local.lr=0.1..inf", "finite"),
        ("local.lr=0.1..nan", "finite"),
        ("local.lr=0.1..1:lin", "may end with :log, not with :lin"),
        ("local.lr=0.1,,1", "a value is missing"),
        ("local.lr=0.1,0.1", "0.1 is given twice"),
        ("local.milestones=[0.5,[]", "not closed"),
        ("local.optimizer='sgd,adam", "not closed"),
    ],
)
def test_a_mistake_names_the_value_and_the_remedy(pair: str, right: str) -> None:
    with pytest.raises(FedfuseError) as error:
        parse_space([pair])
    assert right in str(error.value)
    assert pair in str(error.value)


def test_a_key_is_given_once() -> None:
    with pytest.raises(FedfuseError, match=r"local\.lr is given twice; put all its values into one --param"):
        parse_space(["local.lr=0.1..1", "local.lr=2,3"])


def test_a_name_is_set_before_the_settings_that_it_would_drop() -> None:
    settings = {"data.pool.size": 0.2, "algorithm.mu": 0.1, "algorithm.name": "fedprox", "data.pool": "split"}
    assert list(in_order(settings)) == ["algorithm.name", "algorithm.mu", "data.pool", "data.pool.size"]
    made = fedfuse.load("digits").with_settings(in_order(settings))
    assert made.algorithm.settings["mu"] == 0.1


def test_every_choice_and_both_ends_are_probed_one_key_at_a_time() -> None:
    space: Space = {"local.lr": Range(0.1, 1.0), "local.epochs": Choice((1, 2, 3))}
    assert [tuple(settings.values()) for settings in probes(space)] == [(0.1, 1), (1.0, 1), (0.1, 2), (0.1, 3)]


@pytest.mark.parametrize(
    ("keys", "right"),
    [
        ([], "needs a parameter"),
        (["data.validation"], "same validation data"),
        (["data"], "same validation data"),
        (["run.seed"], "use --seeds for the mean over seeds"),
    ],
)
def test_what_would_change_the_measure_is_no_parameter(keys: list[str], right: str) -> None:
    with pytest.raises(FedfuseError, match=right):
        check_keys(keys)


def test_the_pool_may_be_searched() -> None:
    check_keys(["data.pool.size", "data.pool", "partition.alpha"])
