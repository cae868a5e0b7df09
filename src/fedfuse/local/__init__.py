"""What clients do: terms of the loss, training, reports, settings."""

from fedfuse.local.reports import LocalResult, Report
from fedfuse.local.terms import CrossEntropy, Local, Proximal, Term
from fedfuse.local.training import Training
from fedfuse.local_settings import LocalSettings

__all__ = ["CrossEntropy", "Local", "LocalResult", "LocalSettings", "Proximal", "Report", "Term", "Training"]
