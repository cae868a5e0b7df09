"""The node's app. Start the node with `--node-config 'partition-id=0 memory-dir="/var/lib/fedfuse"'`.

`partition-id` is the client that the node serves, `memory-dir` the folder for what the client keeps between rounds.
Here a node takes its share of scikit-learn's digits. To use the node's own data instead:

    def own(context):
        file = numpy.load(context.node_config["data"])  # x (N, C, H, W) uint8 or (N, ...) float32, y (N,)
        return torch.from_numpy(file["x"]), torch.from_numpy(file["y"])

    app = client_app(experiment, data=own)
"""

from pathlib import Path

from fedfuse.flower import client_app

app = client_app(Path(__file__).parent / "experiment.toml")
