"""Models by name: fedfuse's files and folders, Hugging Face classifiers, and functions that return a net.

No code of a model's folder is run, and only safetensors are opened. A `package.module:factory` is imported.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from fedfuse import models, rng, signature
from fedfuse.in_hand.fusion_file import check_files
from fedfuse.in_hand.raw import Numbers, Raw, Texts
from fedfuse.in_hand.readings import RESAMPLE, NamedModel, NumberReading, TextReading
from fedfuse.in_hand.teachers import labels_of
from fedfuse.models import hf_name, processor
from fedfuse.models.file import MODEL, load_model, read_header
from fedfuse.models.hugging_face import Logits, quiet
from fedfuse.types import FedfuseError

HF = hf_name.MARK
CONFIG, SUFFIX = "config.json", ".safetensors"
FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
TOKENIZER = ("tokenizer*", "vocab*", "*.model", "merges.txt")  # files of which a tokenizer has at least one
LARGEST = 4096  # pixels: the side of an image that a model takes
KINDS = "a model file, a folder, hf:<id or folder>, or package.module:factory"


def needs_classes(name: str) -> bool:
    """Whether a teacher is a function of the number of classes, and so cannot state it."""
    if not _is_factory(name):
        return False
    return bool(inspect.signature(signature.import_function(name, "teacher")).parameters)


def load_teacher(name: str, title: str, data: Raw, classes: int | None) -> NamedModel:
    """Load a trained model. `classes` is for functions that take it."""
    if _is_factory(name):
        return _from_function(name, title, data, classes)
    if (source := _hugging_face_source(name)) is None:
        return _from_fedfuse(name, title)
    return _from_hugging_face(source, title, data)


def load_student(name: str, data: Raw, classes: int, seed: int) -> NamedModel:
    """Build a student with `classes` outputs, or load one to start from. Raise an error if it cannot read the data."""
    title = f"the student {name}"
    with rng.ambient(rng.generator(seed, "student")):
        if name.startswith(HF) or (not _is_zoo(name) and (Path(name).exists() or name.endswith(SUFFIX))):
            source = _hugging_face_source(name)
            return _from_fedfuse(name, title) if source is None else _to_train(source, title, data, classes)
        if isinstance(data, Texts):
            raise FedfuseError(
                f"--student {name} does not read texts, which {data.name} holds: choose hf:<id or folder>"
            )
        shape = tuple(data.x.shape[1:])
        models.check(name, classes, shape)
        net = models.build(name, classes=classes, shape=shape)
    return NamedModel(title, net, NumberReading(shape, data.mean, data.std), None, name)


def _is_zoo(name: str) -> bool:
    return name.partition(":")[0] in models.names()


def _is_factory(name: str) -> bool:
    return FACTORY.fullmatch(name) is not None and not name.startswith(HF) and not Path(name).exists()


def _hugging_face_source(name: str) -> str | None:
    """Return the id or folder of a Hugging Face model; None for a model of fedfuse."""
    source = name.removeprefix(HF)
    path = Path(source).expanduser()
    if path.is_dir():
        check_files(path)
        if not name.startswith(HF) and _is_exported(path):
            return None
        if (path / "models").is_dir():
            raise FedfuseError(f"{name} is a run directory: name one of its models, {path}/models/*.safetensors")
        if not (path / CONFIG).is_file():
            raise FedfuseError(f"{name} has no {CONFIG}: give {KINDS}")
        return str(path)
    if not name.startswith(HF) and path.is_file():
        return None
    if not name.startswith(HF) or source.startswith(("/", ".", "~")):
        raise FedfuseError(f"there is no {source}: give {KINDS}")
    return source


def _is_exported(folder: Path) -> bool:
    try:
        read_header(folder / MODEL)
    except FedfuseError:
        return False
    return True


def _from_fedfuse(name: str, title: str) -> NamedModel:
    model = load_model(Path(name).expanduser())
    reading = NumberReading(model.shape, model.mean, model.std)
    return NamedModel(title, model.net, reading, model.labels, model.arch)


def _from_function(name: str, title: str, data: Raw, classes: int | None) -> NamedModel:
    """The net of a user's function, which takes inputs with the statistics of the pool."""
    if isinstance(data, Texts):
        raise FedfuseError(f"{name} has no tokenizer for the texts of {data.name}: save the model, and name its folder")
    shape = tuple(data.x.shape[1:])
    function = signature.import_function(name, "teacher")
    arguments = {"classes": classes, "shape": shape} if needs_classes(name) else {}
    try:
        with rng.ambient(rng.generator(0, "teacher")):
            net = function(**arguments)
    except (Exception, SystemExit) as error:  # a user's code may raise anything, and even leave the program
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{name} raised {type(error).__name__}: {reason}: give a function of nothing, or of classes and shape"
        ) from error
    if not isinstance(net, nn.Module):
        raise FedfuseError(f"{name} returned a {type(net).__name__}: it must return a torch.nn.Module")
    return NamedModel(title, net, NumberReading(shape, data.mean, data.std), labels_of(net), name)


def _from_hugging_face(source: str, title: str, data: Raw) -> NamedModel:
    """A Hugging Face classifier with all its weights."""
    folder = Path(source)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        raise FedfuseError(f"{title} has no weights, *.safetensors: save them there with save_pretrained")
    with _loading(title):
        net, info = _classifier(data).from_pretrained(
            source, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    if missing := sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"]))):
        raise FedfuseError(f"{title} has no weights for {missing[0]}: train it for its classes, and save it again")
    return _with_reading(source, title, net, data)


def _to_train(source: str, title: str, data: Raw, classes: int) -> NamedModel:
    """A Hugging Face classifier with a new head if it had other classes; without weights, a fresh one."""
    folder, auto = Path(source), _classifier(data)
    fresh = folder.is_dir() and not any(folder.glob("*.safetensors"))
    if fresh and (pickle_file := next(folder.glob("*.bin"), None)) is not None:
        raise FedfuseError(f"{title} has its weights in {pickle_file.name}, a pickle: save them as safetensors")
    with _loading(title):
        if fresh:
            config = _transformers().AutoConfig.from_pretrained(source, num_labels=classes, trust_remote_code=False)
            net = auto.from_config(config, trust_remote_code=False)
        else:
            net = auto.from_pretrained(
                source, num_labels=classes, ignore_mismatched_sizes=True, use_safetensors=True, trust_remote_code=False
            )
    return _with_reading(source, title, net, data)


def _with_reading(source: str, title: str, net: Any, data: Raw) -> NamedModel:
    net = net.float().eval()
    labels, arch = labels_of(net), f"{HF}{source}"
    if isinstance(data, Texts):
        return NamedModel(title, net, TextReading.of(net, _tokenizer(source, title)), labels, arch)
    settings = processor.settings_of(source, title)
    reading = _checked_reading(net.config, settings or {}, data, title)
    return NamedModel(title, Logits(net), reading, labels, arch, settings)


def _classifier(data: Raw) -> Any:
    auto = _transformers()
    texts = isinstance(data, Texts)
    return auto.AutoModelForSequenceClassification if texts else auto.AutoModelForImageClassification


def _tokenizer(source: str, title: str) -> Any:
    folder = Path(source)
    # Without files, transformers would make a tokenizer that knows no word.
    if folder.is_dir() and not any(any(folder.glob(pattern)) for pattern in TOKENIZER):
        raise FedfuseError(f"{title} has no tokenizer: save its own there with save_pretrained")
    with _loading(title):
        return _transformers().AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _checked_reading(config: Any, settings: dict[str, Any], data: Numbers, title: str) -> NumberReading:
    """Return how a model takes images. Raise an error if its processor's settings make no sense."""
    try:
        reading = _image_reading(config, settings, data)
        sizes = (*reading.shape, *(() if reading.shortest is None else (reading.shortest,)))
        if not all(0 < size <= LARGEST for size in sizes):
            raise ValueError(f"a size of {max(sizes)}" if max(sizes) > LARGEST else f"a size of {min(sizes)}")
        if {len(reading.mean), len(reading.std)} - {1, reading.shape[0]}:
            raise ValueError(f"{len(reading.mean)} means, {len(reading.std)} deviations, {reading.shape[0]} channels")
        if not all(map(math.isfinite, (*reading.mean, *reading.std))) or min(reading.std) <= 0:
            raise ValueError(f"mean {reading.mean}, deviation {reading.std}")
    except Exception as error:  # settings of any type
        raise FedfuseError(
            f"the image processor of {title} has settings that cannot be used ({type(error).__name__}: {error}): "
            f"restore {processor.FILES[0]} and {CONFIG}"
        ) from error
    return reading


def _image_reading(config: Any, settings: dict[str, Any], data: Numbers) -> NumberReading:
    """Return how a model takes images: as its processor says, else its configuration, else as the data are."""
    channels = getattr(config, "num_channels", None) or 3
    own = getattr(config, "image_size", None) or tuple(data.x.shape[2:])
    size = settings.get("size", own) if settings.get("do_resize", True) else own
    edge = size.get("shortest_edge") if isinstance(size, dict) else None
    goal, shortest = _pair(edge or size), None
    if edge is not None and "crop_pct" in settings:
        shortest = int(edge / settings["crop_pct"])
    elif settings.get("do_center_crop") and "crop_size" in settings:
        goal, shortest = _pair(settings["crop_size"]), edge
    mean, std = data.mean, data.std
    if settings:
        mean, std = processor.normalisation(settings)
    mode = RESAMPLE.get(settings.get("resample", 2), "bilinear")
    return NumberReading((channels, *goal), mean, std, shortest, mode)


def _pair(size: Any) -> tuple[int, int]:
    """Return (height, width) of a size as processors and configurations write it."""
    if isinstance(size, dict):
        return int(size["height"]), int(size["width"])
    return (int(size), int(size)) if isinstance(size, int | float) else (int(size[0]), int(size[1]))


def _transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise FedfuseError('Hugging Face models need transformers: pip install "fedfuse[hf]"') from error


@contextmanager
def _loading(title: str) -> Iterator[None]:
    """Load without notices, and name the model in errors."""
    try:
        with quiet():
            yield
    except FedfuseError:
        raise
    except Exception as error:  # a damaged file may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{title} cannot be loaded ({type(error).__name__}: {reason}): give a folder that save_pretrained "
            "wrote, or the id of a public model and a network"
        ) from error
