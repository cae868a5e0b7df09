"""FedProx(0) = FedAvg = FedAvgM(0), and FedAvg with any batch-norm statistics: bit for bit, over three rounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import fedavg, fedavgm, fedprox
from fedfuse.engines import InProcess
from fedfuse.records.record import RoundRecord
from fedfuse.round import run_round
from fedfuse.testing import all_bits
from fedfuse.types import ServerState
from fedfuse.vet import Vetting
from tests.doubles import DROPPING, NORMED, context, initial


def rounds(algorithm: Algorithm, arch: str) -> Iterator[tuple[ServerState, RoundRecord]]:
    """Three rounds, with another cohort in each."""
    ctx = context((arch,) * 4, epochs=2, momentum=0.5)
    server, engine = initial(ctx), InProcess()
    for number, cohort in enumerate(([0, 2, 3], [1, 2], [0, 1, 3]), 1):
        server, record = run_round(algorithm, server, engine, cohort, Vetting(), ctx.at(number))
        yield server, record


def three_rounds(algorithm: Algorithm, arch: str) -> list[object]:
    """The models and scores after each round."""
    return [
        (all_bits(server.models), record.test_accuracy, record.test_loss, record.params_up)
        for server, record in rounds(algorithm, arch)
    ]


@pytest.mark.parametrize("arch", ["mlp:8", NORMED, DROPPING])
@pytest.mark.parametrize("reduced", [fedprox(mu=0.0), fedavgm(beta=0.0)], ids=lambda a: a.name)
def test_a_coefficient_of_zero_is_fedavg(reduced: Algorithm, arch: str) -> None:
    assert three_rounds(reduced, arch) == three_rounds(fedavg(), arch)


@pytest.mark.parametrize("other", [fedprox(mu=0.1), fedavgm(beta=0.5)], ids=lambda a: a.name)
def test_a_coefficient_above_zero_is_not(other: Algorithm) -> None:
    # Without this the reduction could hold because the coefficient is never looked at.
    assert three_rounds(other, "mlp:8")[-1] != three_rounds(fedavg(), "mlp:8")[-1]


def test_batch_norm_statistics_do_not_enter_fedavg_s_weights() -> None:
    """A net in training normalises by its batch: FedAvg as released, with the last client's, has the same weights."""
    averaged, last = (list(rounds(fedavg(buffers=policy), NORMED)) for policy in ("mean", "last"))
    for (ours, _), (theirs, _) in zip(averaged, last, strict=True):
        one, other = ours.models[NORMED], theirs.models[NORMED]
        assert all(torch.equal(one.params[name], other.params[name]) for name in one.params)
        assert not all(torch.equal(one.buffers[name], other.buffers[name]) for name in one.buffers)
