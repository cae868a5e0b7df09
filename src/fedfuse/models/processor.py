"""Image processors of Hugging Face models: how a pretrained net expects its images to be normalised."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from fedfuse.models import shared_head, split
from fedfuse.models.hf_name import MARK, parse
from fedfuse.types import FedfuseError

FILES = ("preprocessor_config.json", "processor_config.json")

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation, of x / 255


def settings_of(source: str, title: str) -> dict[str, Any] | None:
    """Return the settings of a model's image processor, if it has one. The processor itself would need torchvision."""
    mixin = import_module("transformers.image_processing_base").ImageProcessingMixin
    folder = Path(source).expanduser()
    if folder.is_dir() and not any((folder / name).exists() for name in FILES):
        return None
    try:
        settings: dict[str, Any] = mixin.get_image_processor_dict(str(folder) if folder.is_dir() else source)[0]
    except Exception as error:  # a damaged file may raise anything
        if not folder.is_dir():
            return None
        raise FedfuseError(
            f"the image processor of {title} cannot be read ({type(error).__name__}): restore {FILES[0]}"
        ) from error
    return settings


def normalisation(processor: dict[str, Any]) -> Normalisation:
    """Return mean and deviation by a processor's settings. Raise a ValueError if they make no sense."""
    scale = 255 * processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 255.0
    if ("image_mean" in processor) != ("image_std" in processor):
        raise ValueError("a mean without a deviation, or the reverse")
    normal = processor.get("do_normalize", True) and "image_mean" in processor
    means, stds = (processor["image_mean"], processor["image_std"]) if normal else ([0.0], [1.0])
    return tuple(m / scale for m in means), tuple(s / scale for s in stds)


def normalisation_of_models(archs: Sequence[str], channels: int) -> Normalisation | None:
    """Return how the `hf:` models among these normalise images, which must be the same; None if none of them says."""
    own = {arch: value for arch in archs if (value := _normalisation_of_model(arch, channels)) is not None}
    for arch, value in own.items():
        first = next(iter(own))
        if value != own[first]:
            raise FedfuseError(
                f"{first} and {arch} normalise images in different ways, and all models read the same inputs: choose "
                'models of one normalisation, or set data.normalise = "data"'
            )
    return next(iter(own.values()), None)


def _normalisation_of_model(arch: str, channels: int) -> Normalisation | None:
    first = shared_head.split(arch.partition(split.MARK)[0])[0]
    settings = settings_of(parse(first).source, arch) if first.startswith(MARK) else None
    if settings is None:
        return None
    try:
        mean, std = normalisation(settings)
        if {len(mean), len(std)} - {1, channels} or not all(map(isfinite, (*mean, *std))) or min(std) <= 0:
            raise ValueError(f"mean {mean} and deviation {std} for {channels} channels")
    except Exception as error:  # settings of any type
        raise FedfuseError(
            f"the image processor of {arch} has settings that cannot be used ({type(error).__name__}: {error}): "
            f'restore {FILES[0]}, or set data.normalise = "data"'
        ) from error
    return mean * (channels // len(mean)), std * (channels // len(std))
