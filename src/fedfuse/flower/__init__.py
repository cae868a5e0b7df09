"""Run an experiment as a Flower app, over a real SuperLink and SuperNodes: `pip install fedfuse[flower]`."""

import os as _os

_os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower reads it on import
_os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

try:
    import flwr as _flwr  # noqa: F401  (only for the error message below)
except ImportError as error:
    raise ImportError("fedfuse.flower needs Flower: pip install 'fedfuse[flower]'") from error

from fedfuse.flower.client import client_app
from fedfuse.flower.server import Deployment, server_app

__all__ = ["Deployment", "client_app", "server_app"]
