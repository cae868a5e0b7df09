"""The nets of an experiment that names none: small ones that suit the kind of data."""

from __future__ import annotations

from fedfuse.models.classifier import Shape

AUTO = "auto"  # models.clients, where the experiment names no architecture
SMALLEST_SIDE = 16  # pixels: smaller images are given to a perceptron


def default_models(shape: Shape, *, images: bool, texts: bool) -> tuple[str, str]:
    """Return the default architecture of the clients, and the default large model of the server."""
    if texts:
        return "bag", "bag:256"
    if images and min(shape[1:]) >= SMALLEST_SIDE:
        return "resnet8", "resnet20"
    return "mlp:64-32", "mlp:256-128"
