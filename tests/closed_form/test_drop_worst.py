"""Drop-worst in algorithms that average: who is left out counts in nothing, and is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from fedfuse.algorithm import Algorithm, check_parts
from fedfuse.algorithms import fed_et, fedavg, fedavgm, fedbe, feddf, fedprox, moon, scaffold, v_distillation
from fedfuse.algorithms.scaffold.client import CONTROL
from fedfuse.context import Context
from fedfuse.data.examples import Examples
from fedfuse.engines import InProcess
from fedfuse.fusion import Averaged, Distilled, DropWorst, Momentum, WeightedMean
from fedfuse.round import run_round
from fedfuse.testing import all_bits, small_context
from fedfuse.types import FedfuseError, ServerState, Update
from fedfuse.vet import Vetting
from tests.doubles import context, initial, snapshot, trained, update

AVERAGING = [fedavg, fedprox, fedavgm, moon, scaffold]


@dataclass(frozen=True)
class Without:
    """Leaves these clients out."""

    clients: tuple[int, ...]

    def __call__(self, updates: Iterable[Update], ctx: Context) -> Iterator[tuple[Update, str | None]]:
        return ((each, "too bad" if each.client in self.clients else None) for each in updates)


def zeroed(each: Update) -> Update:
    """The same client with a model of zeros: it predicts class 0, which is chance."""
    assert each.model is not None
    params = {name: torch.zeros_like(t) for name, t in each.model.params.items()}
    return replace(each, model=replace(each.model, params=params))


def test_the_mean_is_over_those_admitted() -> None:
    server = ServerState(0, {"one": snapshot(0.0)})
    updates = [update(0, 1, snapshot(4.0)), update(1, 7, snapshot(100.0)), update(2, 3, snapshot(8.0))]
    fused, facts = Averaged(admission=Without((1,)))(server, updates, context())
    assert fused.models["one"].params["w"].item() == (1 * 4 + 3 * 8) / 4
    assert facts.dropped == {"1": "too bad"}
    assert facts.warning is None


def test_momentum_sees_only_those_admitted() -> None:
    server = ServerState(0, {"one": snapshot(1.0)}, {"velocity/one": {"w": torch.tensor([2.0])}})
    updates = [update(0, 1, snapshot(0.0)), update(1, 1, snapshot(50.0))]
    fused, _ = Averaged(Momentum(0.5), Without((1,)))(server, updates, context())
    # v := 0.5 * 2 + (1 - 0) = 2, x := 1 - 2 = -1.
    assert fused.models["one"].params["w"].item() == -1
    assert fused.memory["velocity/one"]["w"].item() == 2


def test_if_all_are_dropped_models_and_memory_stay_and_the_facts_say_so() -> None:
    memory = {"velocity/one": {"w": torch.tensor([2.0])}}
    server = ServerState(4, {"one": snapshot(1.5)}, memory)
    updates = [update(0, 1, snapshot(0.0)), update(1, 1, snapshot(9.0))]
    fused, facts = Averaged(Momentum(0.5, WeightedMean()), Without((0, 1)))(server, updates, context())
    assert fused.round == 5
    assert fused.models["one"].params["w"].item() == 1.5
    assert fused.memory == memory
    assert facts.warning == "every client was dropped: the server keeps the previous models"
    assert facts.dropped.keys() == {"0", "1"}


@pytest.mark.parametrize("make", AVERAGING, ids=lambda make: make.__name__)
def test_a_client_at_chance_is_left_out_of_every_average(make) -> None:  # type: ignore[no-untyped-def]
    algorithm: Algorithm = make(drop_worst=True)
    ctx = small_context(algorithm)
    server = initial(ctx)
    updates = trained(ctx, server, algorithm, range(4))
    without, _ = algorithm.fuse(server, [updates[k] for k in (0, 2, 3)], ctx)
    fused, facts = algorithm.fuse(server, [updates[0], zeroed(updates[1]), updates[2], updates[3]], ctx)
    assert facts.dropped == {"1": "validation accuracy 0.3333 is below 0.4000 (chance)"}
    assert all_bits(fused.models) == all_bits(without.models)
    off, facts = make().fuse(server, [updates[0], zeroed(updates[1]), updates[2], updates[3]], ctx)
    assert all_bits(off.models) != all_bits(without.models)
    assert not facts.dropped


def test_scaffolds_control_variate_stays_the_mean_of_the_clients() -> None:
    """A client that is left out neither changes c nor keeps the c_i of that round."""
    ctx, engine = context(epochs=2), InProcess()
    admitting = scaffold()
    assert isinstance(admitting.fuse, Averaged)
    dropping = replace(admitting, fuse=replace(admitting.fuse, admission=Without((2,))))
    server, _ = run_round(admitting, initial(ctx), engine, [0, 1, 2, 3], Vetting(), ctx)
    before = engine.memory()[2][CONTROL]
    server, record = run_round(dropping, server, engine, [1, 2, 3], Vetting(), ctx.at(2))
    assert record.facts.dropped == {"2": "too bad"}
    memory = engine.memory()
    for name, c in server.memory[f"{CONTROL}/mlp:8"].items():
        assert torch.equal(memory[2][CONTROL][name], before[name])
        torch.testing.assert_close(c, torch.stack([memory[k][CONTROL][name] for k in range(4)]).mean(0))


@pytest.mark.parametrize("make", [feddf, fedbe, v_distillation, fed_et], ids=lambda make: make.__name__)
def test_what_is_built_on_an_algorithm_that_drops_drops_too(make) -> None:  # type: ignore[no-untyped-def]
    fuse = make(over=fedavg(drop_worst=True)).fuse
    assert isinstance(fuse, Distilled)
    assert fuse.admission == DropWorst()
    assert make().fuse.admission != DropWorst()


def test_it_needs_validation_data() -> None:
    ctx = context()
    y = torch.zeros(0, dtype=torch.int64)
    none = Examples(torch.zeros(0, 4), y, 3, torch.zeros(4), torch.ones(4))
    ctx = replace(ctx, data=replace(ctx.data, validation=none))
    check_parts(fedavg(), ctx)
    with pytest.raises(FedfuseError, match=r"set data\.validation"):
        check_parts(fedavg(drop_worst=True), ctx)
