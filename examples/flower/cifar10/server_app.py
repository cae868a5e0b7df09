"""The server's app. It has test images, a pool without labels and the large model, and never sees the nodes' data."""

from pathlib import Path

from fedfuse.flower import server_app

app = server_app(Path(__file__).parent / "experiment.toml")
