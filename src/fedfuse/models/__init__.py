"""Architectures by name: `build("resnet8:gn", classes=10, shape=(3, 32, 32))`."""

from fedfuse.models.catalogue import ZOO, Architecture, build, check
from fedfuse.models.classifier import Classifier

__all__ = ["ZOO", "Architecture", "Classifier", "build", "check"]
