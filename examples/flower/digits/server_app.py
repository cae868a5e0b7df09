"""The server's app: it fuses the nodes' answers, and never sees their data."""

from pathlib import Path

from fedfuse.flower import server_app

app = server_app(Path(__file__).parent / "experiment.toml")
