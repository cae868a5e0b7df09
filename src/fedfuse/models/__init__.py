"""Architectures by name: `build("resnet8:gn", classes=10, shape=(3, 32, 32))`."""

from fedfuse.models.catalogue import TEXT_NETS, ZOO, Architecture, TextNet, build, names
from fedfuse.models.checks import check
from fedfuse.models.classifier import Classifier

__all__ = ["TEXT_NETS", "ZOO", "Architecture", "Classifier", "TextNet", "build", "check", "names"]
