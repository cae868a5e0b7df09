"""What happens at a client: terms of the loss, training, reports, settings."""

from fedfuse.local.reports import ControlChange, Done, PastModel, Report, travelled
from fedfuse.local.terms import (
    CONTROL,
    PREVIOUS,
    ControlVariate,
    CrossEntropy,
    Local,
    ModelContrast,
    Proximal,
    Term,
    trunk_and_head,
)
from fedfuse.local.training import Training
from fedfuse.local_settings import LocalSettings

__all__ = [
    "CONTROL",
    "PREVIOUS",
    "ControlChange",
    "ControlVariate",
    "CrossEntropy",
    "Done",
    "Local",
    "LocalSettings",
    "ModelContrast",
    "PastModel",
    "Proximal",
    "Report",
    "Term",
    "Training",
    "travelled",
    "trunk_and_head",
]
