"""The server: test images and a pool without labels are its own, and the large model. It never sees the nodes' data."""

from pathlib import Path

from fedfuse.flower import server_app

app = server_app(Path(__file__).parent / "experiment.toml")
