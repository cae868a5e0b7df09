"""The same experiment as a Flower app, over a real SuperLink and SuperNodes: `pip install fedfuse[flower]`."""

import os as _os

_os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower reads it when it is imported
_os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

try:
    import flwr as _flwr  # noqa: F401  (only to say what to install)
except ImportError as error:
    raise ImportError("fedfuse.flower needs Flower: pip install 'fedfuse[flower]'") from error

from fedfuse.flower.client import client_app
from fedfuse.flower.server import Deployment, server_app

__all__ = ["Deployment", "client_app", "server_app"]
