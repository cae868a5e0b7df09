"""One node of a real federation lies, in each round otherwise: what `test_hostile` does over a Grid in one process.

All that an app can do is here. A node's app answers a message once and does not choose its sender's name, so a second
reply and one under another node's name are left to that test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import safetensors.torch

import fedfuse
from fedfuse.engines import InProcess
from fedfuse.flower import Deployment, app
from fedfuse.flower.loopback import up
from fedfuse.flower.loopback.federation import loopback
from fedfuse.round import run_round
from fedfuse.runs.display import Silent
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import ServerState
from fedfuse.vet import Vetting
from tests.flower.federations import CLIENTS, experiment
from tests.flower.test_hostile import HOSTILE, LIAR

pytestmark = pytest.mark.federation
SECONDS = 300.0
CASES = [
    "NaN", "Inf", "wrong shape", "wrong name", "other dtype", "broadcastable shape", "negative examples",
    "huge examples", "fractional examples", "another round", "truncated", "lying header", "header of 40 GB",
]  # fmt: skip
LYING = """
from pathlib import Path

from flwr.clientapp import ClientApp

from fedfuse.flower import client_app, wire
from tests.flower.test_hostile import HOSTILE, LIAR
from tests.flower.test_hostile_node import CASES

honest = client_app(Path(__file__).parent / "experiment.toml")
app = ClientApp()


def lie(message, context):
    reply = honest(message, context)
    if context.node_config["partition-id"] == LIAR and message.metadata.message_type == "train":
        (reply,) = HOSTILE[CASES[wire.about(message)["round"] - 1]][0](message, reply)
    return reply


app.query()(lie)
app.train()(lie)
"""


def write_lying_app(folder: Path, made: fedfuse.Experiment, deployment: Deployment) -> None:
    app.write_app(folder, made, deployment)
    (folder / "client_app.py").write_text(LYING)


def test_each_lie_is_refused_and_the_models_are_as_without_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "write_app", write_lying_app)
    made = experiment(**{"run.rounds": len(CASES)})
    with loopback(tmp_path / "federation", CLIENTS, Silent()) as federation:
        place = Deployment(str(tmp_path / "run"), timeout=SECONDS, wait=SECONDS, start=CLIENTS)
        records = up.submit(made, tmp_path / "run", federation, place, Silent())
    for case, record in zip(CASES, records, strict=True):
        assert list(record.rejected) == [str(LIAR)], case
        assert re.search(HOSTILE[case][1], record.rejected[str(LIAR)]), case

    ctx, algorithm = set_up(made, load_federation(made)).ctx, made.algorithm.build()
    server = ServerState(0, ctx.initial())
    for number, record in enumerate(records, 1):
        server, without = run_round(algorithm, server, InProcess(), [0, 2], Vetting(), ctx.at(number))
        assert (record.test_loss, record.clients) == (without.test_loss, without.clients)
    ((_, model),) = server.models.items()
    (file,) = (tmp_path / "run" / "models").glob("*.safetensors")
    ended = safetensors.torch.load_file(file)
    assert {name: t.numpy().tobytes() for name, t in ended.items()} == {
        name: t.numpy().tobytes() for name, t in {**model.params, **model.buffers}.items()
    }
