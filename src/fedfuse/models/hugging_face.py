"""`hf:<id or folder>`: classifiers of images or texts of transformers, and encoders of texts as trunks.

Weights are read from safetensors files: no pickle is opened, and no code of a model is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse.models.classifier import Shape, classify
from fedfuse.models.encoder import Encoder, Pooling, check_fit, has_pooler, library
from fedfuse.models.hf_name import HfName, parse
from fedfuse.types import FedfuseError

_POOLING = Path("1_Pooling", "config.json")  # of sentence-transformers
_SENTENCE_POOLINGS: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}


class Logits(nn.Module):
    """A transformers model whose forward returns only the logits (B, classes)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def hugging_face(name: str, classes: int, shape: Shape, *, features: bool = False) -> nn.Module:
    """The classifier of images or texts of this name in train mode, with a new head where its own does not fit.

    A configuration without weights, a folder or a file, gives a net with fresh weights; a folder with only an encoder
    gives that encoder with a new head. With `features`, or with an option `pool`, a net for texts is a Classifier
    whose trunk is the encoder.
    """
    named = parse(name)
    auto = library(name)
    if named.source.startswith(("/", ".", "~")) and named.folder is None and named.file is None:
        raise FedfuseError(f"{name}: no such folder. Give a folder that holds config.json, or a model's id")
    _refuse_pickle(named)
    try:
        with quiet():
            config = configuration(auto, named, num_labels=classes)
            if not is_for_images(auto, config):
                check_fit(name, config, shape)
                if features or named.pool is not None:
                    return _encoder(auto, named, config, classes)
            elif named.pool is not None:
                raise FedfuseError(f"{name}: a model of images has no pooling of words: leave :pool= out")
            net, missing = _loaded(kind_of(auto, config), named, config)
            _check_weights(net, missing)
    except FedfuseError:
        raise
    except Exception as error:  # a damaged folder may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(
            f"{name}: no classifier could be loaded ({reason}). Give the id of a public model,"
            " or a folder that holds config.json; this needs `pip install fedfuse[hf]` and, for an id, a network"
        ) from error
    return with_call(auto, net).float().train()  # weights stored in half precision cannot be averaged with others


def configuration(auto: Any, named: HfName, **settings: Any) -> Any:
    """The model's configuration, with the number of layers of its name."""
    config = auto.AutoConfig.from_pretrained(named.location, trust_remote_code=False, **settings)
    if named.layers is None:
        return config
    has = getattr(config, "num_hidden_layers", None)
    if not isinstance(has, int) or getattr(config, "is_encoder_decoder", False) or is_for_images(auto, config):
        raise FedfuseError(
            f"{named}: only encoders of texts that are a stack of layers, such as BERT, DistilBERT and MiniLM, can be "
            f"cut, but this is a {config.model_type}: leave :layers= out"
        )
    if named.layers > has:
        raise FedfuseError(f"{named}: the encoder has {has} layers: give at most {has}")
    config.num_hidden_layers = named.layers
    return config


def _loaded(kind: Any, named: HfName, config: Any) -> tuple[nn.Module, list[str]]:
    """A net of this class with the model's weights, and the names of those that it lacks.

    A folder without weights gives fresh ones; so does every model where only shapes are wanted, on the meta device.
    """
    if torch.get_default_device().type == "meta" or named.file or (named.folder and not _has_weights(named.folder)):
        return kind.from_config(config, trust_remote_code=False), []
    net, loading = kind.from_pretrained(
        named.location,
        config=config,
        ignore_mismatched_sizes=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    return net, sorted([*loading["missing_keys"], *(key[0] for key in loading["mismatched_keys"])])


def _check_weights(net: Any, missing: list[str]) -> None:
    """Refuse weights that lack a layer of the base model: transformers would draw it at random.

    A new head is drawn, and so is a pooler, which many base models lack.
    """
    start = f"{net.base_model_prefix}."
    if absent := [name for name in missing if name.startswith(start) and "pooler" not in name]:
        raise ValueError(f"its weights lack {absent[0]}")


def _encoder(auto: Any, named: HfName, config: Any, classes: int) -> nn.Module:
    if getattr(config, "is_encoder_decoder", False):
        raise FedfuseError(f"{named}: a {config.model_type} is no encoder alone: its features are not known here")
    encoder, missing = _loaded(auto.AutoModel, named, config)
    if absent := [name for name in missing if not name.startswith("pooler.")]:  # transformers would draw it at random
        raise FedfuseError(f"{named}: its weights lack {absent[0]} of the encoder: choose another model")
    pooler = has_pooler(encoder) and not missing
    pool = named.pool or own_pooling(named) or ("pooler" if pooler else "mean")
    if pool == "pooler" and not pooler:
        raise FedfuseError(f"{named}: this {config.model_type} has no pooler: choose :pool=first or :pool=mean")
    return classify(Encoder(encoder.float(), pool), config.hidden_size, classes).train()


def own_pooling(named: HfName) -> Pooling | None:
    """The pooling that a folder of sentence-transformers states."""
    file = None if named.folder is None else named.folder / _POOLING
    if file is None or not file.is_file():
        return None
    stated = json.loads(file.read_text())
    return next((pool for key, pool in _SENTENCE_POOLINGS.items() if stated.get(key) is True), None)


def is_for_images(auto: Any, config: Any) -> bool:
    return type(config) in auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING


def kind_of(auto: Any, config: Any) -> Any:
    """The class of classifiers for this configuration: of images, or else of texts."""
    images = is_for_images(auto, config)
    return auto.AutoModelForImageClassification if images else auto.AutoModelForSequenceClassification


def with_call(auto: Any, net: Any) -> nn.Module:
    """The net as it is called: with one tensor for images; a classifier of texts takes its inputs by name."""
    return Logits(net) if is_for_images(auto, net.config) else net


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing bars and warnings, such as that a new head is untrained."""
    logging = library("hf:").utils.logging
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _refuse_pickle(named: HfName) -> None:
    """Refuse a folder whose only weights are a pickle, which would otherwise give fresh weights."""
    if named.folder is None or _has_weights(named.folder):
        return
    if (pickled := next(named.folder.glob("*.bin"), None)) is not None:
        raise FedfuseError(f"{named} has its weights in {pickled.name}, a pickle: save them as safetensors")
