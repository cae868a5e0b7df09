"""Images are normalised as the processors of pretrained nets say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedfuse
from fedfuse.data.examples import Examples
from fedfuse.runs.setup import load_federation
from fedfuse.types import FedfuseError

transformers = pytest.importorskip("transformers", reason="the nets are transformers'")


def folder(path: Path, **processor: object) -> str:
    """A small image classifier without weights, and its processor's settings."""
    sizes = {"embedding_size": 4, "hidden_sizes": [4], "depths": [1]}
    transformers.ResNetConfig(num_channels=3, layer_type="basic", **sizes).save_pretrained(path)
    if processor:
        (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return f"hf:{path}"


def federation(models: Any, **data: object) -> fedfuse.data.Federation:
    images = np.random.default_rng(0).integers(256, size=(60, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(60) % 2
    return load_federation(
        fedfuse.Experiment(
            data={"source": ((images, labels), (images[:10], labels[:10])), "pool": {"kind": "split"}, **data},
            partition={"clients": 2},
            models={"clients": models},
        )
    )


def means_and_deviations(examples: Examples) -> list[list[float]]:
    return [pytest.approx(statistic.tolist()) for statistic in (examples.mean, examples.std)]


def test_all_images_are_normalised_as_the_processor_says(tmp_path: Path) -> None:
    net = folder(tmp_path, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.2, 0.1])
    made = federation({net: 1, "resnet8": 1})
    for examples in (made.train, made.validation, made.test, made.pool):
        assert examples is not None
        assert means_and_deviations(examples) == [[0.5, 0.4, 0.3], [0.2, 0.2, 0.1]]
    # A white pixel of the second channel is (1 - 0.4) / 0.2.
    assert made.train.normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))[0, 1].item() == pytest.approx(3.0)


def test_a_processor_that_only_rescales_is_followed_too(tmp_path: Path) -> None:
    # x / 127.5 - 0, so that 255 becomes 2: in units of x / 255, the deviation is 0.5.
    net = folder(tmp_path, do_normalize=False, rescale_factor=1 / 127.5)
    assert means_and_deviations(federation(net).train) == [[0.0] * 3, [0.5] * 3]


def test_without_a_processor_or_by_choice_the_data_say_how(tmp_path: Path) -> None:
    own = federation("resnet8").train.mean
    assert torch.equal(federation(folder(tmp_path / "plain")).train.mean, own)
    net = folder(tmp_path / "with", image_mean=[0.5], image_std=[0.5])
    assert torch.equal(federation(net, normalise="data").train.mean, own)
    assert not torch.equal(federation(net).train.mean, own)


def test_processors_that_differ_or_make_no_sense_are_refused(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", image_mean=[0.5], image_std=[0.5])
    other = folder(tmp_path / "other", image_mean=[0.4], image_std=[0.5])
    with pytest.raises(FedfuseError, match=r"normalise images in different ways.*data.normalise"):
        federation({one: 1, other: 1})
    for number, settings in enumerate(
        ({"image_mean": [0.5]}, {"image_mean": [0.5], "image_std": [0.0]}, {"image_mean": "x", "image_std": [1.0]})
    ):
        with pytest.raises(FedfuseError, match=r"settings that cannot be used .*restore preprocessor_config\.json"):
            federation(folder(tmp_path / str(number), **settings))
