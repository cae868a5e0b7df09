"""Errors that users can correct. Apart from `types`, so that the command line can name them without torch."""

from __future__ import annotations


class FedfuseError(Exception):
    """An error that the user can correct: the message names the party, the value and the remedy."""


class DamagedError(FedfuseError):
    """A file that is not as it was written."""


class NotFiniteError(FedfuseError):
    """A model's parameters, outputs or loss contain infinities or NaN. A client may cause it, so the run goes on."""
