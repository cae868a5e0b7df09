"""Settings that replace others of an experiment."""

import pytest

import fedfuse
from fedfuse.config.named import ConfigError


@pytest.mark.parametrize(("setting", "left"), [("steps", {"steps": 7}), ("epochs", {"epochs": 7})])
def test_local_steps_and_epochs_replace_each_other(setting: str, left: dict[str, int]) -> None:
    local = fedfuse.load("digits", {f"local.{setting}": 7}).local
    assert {name: getattr(local, name) for name in ("epochs", "steps") if getattr(local, name) is not None} == left
    with pytest.raises(ConfigError, match="not both"):
        fedfuse.load("digits", {"local.steps": 3, "local.epochs": 2})
