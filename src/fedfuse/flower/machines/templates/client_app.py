"""The node's app. It reads what `data` in the node config names; the data does not leave the node.

To read something else, replace `own_data(APP)` by your own function: it receives Flower's context, which holds the node
config, and returns x (N, ...) and y (N,).
"""

from pathlib import Path

from fedfuse.flower import client_app
from fedfuse.flower.machines.node_data import own_data

APP = Path(__file__).parent
app = client_app(APP / "experiment.toml", data=own_data(APP))
