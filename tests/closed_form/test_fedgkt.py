"""FedGKT: its losses by hand, what travels, what each side remembers, and answers that are not believed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedfuse
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import fedgkt
from fedfuse.algorithms.fedgkt.client import EXAMPLES, EXTRACTOR, SERVER, TransferLoss
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.local.own_model import OWN
from fedfuse.models.split import Split
from fedfuse.round import run_round
from fedfuse.runs.setup import load_federation
from fedfuse.testing import all_bits, answers, check_algorithm, small_context
from fedfuse.types import FedfuseError, ServerState, Snapshot, Tensors, Update
from fedfuse.vet import Vetting
from tests.closed_form.test_ds_fl import Watched
from tests.doubles import Scripted

MODEL = "mlp:8|mlp:16"


def small(**settings: object) -> Algorithm:
    return fedgkt(**{"epochs": 2, "batch_size": 32, "probe": 20, **settings})  # type: ignore[arg-type]


def begun(algorithm: Algorithm | None = None, archs: tuple[str, ...] = ("mlp:8",)) -> tuple[ServerState, Context]:
    ctx = small_context(algorithm or small(), archs, rounds=3)
    return ServerState(0, ctx.initial()), ctx


# Losses.


def test_the_loss_by_hand() -> None:
    # Softened by T = 2 the teacher says (3/4, 1/4), the student (1/2, 1/2).
    logits, teacher = torch.zeros(1, 2), torch.tensor([[2 * math.log(3), 0.0]])
    kl = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    loss = TransferLoss(temperature=2.0, alpha=0.5)(logits, torch.tensor([1]), teacher)
    assert float(loss) == pytest.approx(math.log(2) + 0.5 * 4 * kl)


def test_the_loss_is_the_mean_of_a_batch() -> None:
    logits, teacher, y = torch.randn(5, 3), torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    loss = TransferLoss(3.0, 1.0)
    each = [loss(logits[i : i + 1], y[i : i + 1], teacher[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(loss(logits, y, teacher), torch.stack(each).mean())


def test_without_a_teacher_or_weight_it_is_cross_entropy() -> None:
    logits, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    plain = F.cross_entropy(logits, y)
    assert torch.equal(TransferLoss(3.0, 1.0)(logits, y, None), plain)
    assert torch.equal(TransferLoss(3.0, 0.0)(logits, y, torch.randn(4, 3)), plain)


def test_who_agrees_with_the_teacher_pays_nothing_more() -> None:
    logits, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(TransferLoss(3.0, 1.0)(logits, y, logits + 5), F.cross_entropy(logits, y))


def test_the_server_steps_down_this_loss() -> None:
    """One batch, one epoch: Adam's first step is lr in the direction of the gradient's sign."""
    algorithm = small(epochs=1, batch_size=1000, weight_decay=0.0, lr=0.01)
    server, ctx = begun(algorithm)
    sent = answers(algorithm, server, ctx)
    net = ctx.nets.load(server.models[MODEL], "test")
    assert isinstance(net, Split)
    features, logits, labels = (
        torch.cat([u.extra[EXAMPLES][n] for u in sent]) for n in ("features", "logits", "labels")
    )
    outputs = net.server(features)
    kl = F.kl_div(F.log_softmax(outputs / 3, 1), F.softmax(logits / 3, 1), reduction="batchmean")
    loss = F.cross_entropy(outputs, labels) + 9 * kl
    (gradient,) = torch.autograd.grad(loss, [net.server.head.weight])
    fused, facts = algorithm.fuse(server, sent, ctx)
    name = "server.head.weight"
    moved = fused.models[MODEL].params[name] - server.models[MODEL].params[name]
    torch.testing.assert_close(moved, -0.01 * gradient.sign(), rtol=1e-3, atol=1e-6)
    assert facts.students[ctx.server].loss.first == pytest.approx(loss.item(), rel=1e-5)
    assert facts.students[ctx.server].steps == 1


# What a client does and sends.


def test_a_client_describes_its_examples_in_their_order() -> None:
    algorithm = small()
    server, ctx = begun(algorithm, ("mlp:8-6:bn",))
    result = algorithm.local(algorithm.brief(server, 1, ctx), {}, ctx)
    net = ctx.nets.load(Snapshot("mlp:8-6:bn", *(result.memory[group] for group in OWN)), "test").eval()
    rows = ctx.data.parts[1]
    x = ctx.data.train.batch(rows)
    torch.testing.assert_close(result.extra[EXAMPLES]["logits"], net(x).detach())
    torch.testing.assert_close(result.extra[EXAMPLES]["features"], net.trunk[:4](x).detach())  # type: ignore[index,operator]
    assert torch.equal(result.extra[EXAMPLES]["labels"], ctx.data.train.y[rows])
    assert set(result.extra[EXTRACTOR]) == {
        "1.weight", "1.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked",
    }  # fmt: skip


def test_a_clients_first_round_is_plain_training() -> None:
    algorithm, plain = small(), fedfuse.algorithms.fedavg()
    server, ctx = begun(algorithm)
    result = algorithm.local(algorithm.brief(server, 2, ctx), {}, ctx)
    # FedGKT's server holds no model of the clients': both sides draw the same first one.
    held = ServerState(0, replace(ctx, small_models=True).initial())
    trained = plain.local(plain.brief(held, 2, ctx), {}, ctx)
    assert trained.model is not None
    assert all(torch.equal(result.memory[OWN[0]][name], t) for name, t in trained.model.params.items())
    assert result.metrics == trained.metrics


def test_the_servers_logits_teach_the_example_they_are_of() -> None:
    """A teacher that knows each label helps; the same logits in another order do not."""
    algorithm = small(alpha=20.0)
    server, ctx = begun(algorithm)
    ctx = replace(ctx, local=ctx.local.model_copy(update={"lr": 0.01, "epochs": 10}))
    labels = ctx.data.train.y[ctx.data.parts[3]]
    task = algorithm.brief(server, 3, ctx)
    sure = 6.0 * F.one_hot(labels, 3).float()

    def right(teacher: Tensor) -> float:
        result = algorithm.local(replace(task, extra={SERVER: {"logits": teacher}}), {}, ctx)
        return (result.extra[EXAMPLES]["logits"].argmax(1) == labels).double().mean().item()

    assert right(sure) > right(sure.roll(1, 0)) + 0.2


# What travels, and what is remembered.


def test_no_model_travels_and_what_does_is_counted() -> None:
    algorithm, engine = small(), Watched()
    server, ctx = begun(algorithm)
    server, first = run_round(algorithm, server, engine, [0, 1, 2], Vetting(), ctx)
    _, second = run_round(algorithm, server, engine, [1, 2, 3], Vetting(), ctx.at(2))
    assert all(task.model is None for task in engine.tasks)
    assert all(isinstance(answer, Update) and answer.model is None for answer in engine.updates)
    # A row has 8 features, 3 logits and a label; the extractor is a layer 4 -> 8.
    sizes = ctx.data.sizes
    assert first.params_up == sum(sizes[:3]) * (8 + 3 + 1) + 3 * (4 * 8 + 8)
    assert second.params_up == sum(sizes[1:]) * (8 + 3 + 1) + 3 * (4 * 8 + 8)
    assert first.params_down == 0
    assert second.params_down == sum(sizes[1:3]) * 3  # client 3 is new
    assert not first.rejected
    assert not second.rejected


def test_a_client_gets_the_servers_logits_of_its_own_features() -> None:
    algorithm = small()
    server, ctx = begun(algorithm)
    sent = answers(algorithm, server, ctx)[:2]
    fused, _ = algorithm.fuse(server, sent, ctx)
    net = ctx.nets.load(fused.models[MODEL], "test").eval()
    assert isinstance(net, Split)
    for update in sent:
        logits = algorithm.brief(fused, update.client, ctx.at(2)).extra[SERVER]["logits"]
        torch.testing.assert_close(logits, net.server(update.extra[EXAMPLES]["features"]).detach())
    assert algorithm.brief(fused, 2, ctx.at(2)).extra == {}
    # A round later others take part: what was said to these two stays.
    later, _ = algorithm.fuse(fused, [replace(sent[0], client=2)], ctx.at(2))
    assert all(torch.equal(later.memory[k]["logits"], fused.memory[k]["logits"]) for k in ("logits/0", "logits/1"))
    assert later.memory.keys() == {"logits/0", "logits/1", "logits/2"}


def test_a_second_round_goes_on_from_the_first_and_heeds_the_server() -> None:
    algorithm, engine = small(), InProcess()
    server, ctx = begun(algorithm)
    server, _ = run_round(algorithm, server, engine, [0, 1], Vetting(), ctx)
    now, memory = ctx.at(2), engine.memory()[1]
    task = algorithm.brief(server, 1, now)
    with_server, alone, anew = (
        algorithm.local(task, memory, now),
        algorithm.local(replace(task, extra={}), memory, now),
        algorithm.local(task, {}, now),
    )
    logits = [u.extra[EXAMPLES]["logits"] for u in (with_server, alone, anew)]
    assert not torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


def test_the_reported_extractor_is_the_clients_mean_by_examples() -> None:
    algorithm = small()
    server, ctx = begun(algorithm)
    one, other = answers(algorithm, server, ctx)[:2]
    ones = {name: torch.ones_like(t) for name, t in one.extra[EXTRACTOR].items()}
    fives = {name: torch.full_like(t, 5) for name, t in ones.items()}
    sent = [with_extractor(one, ones), with_extractor(other, fives)]
    fused, _ = algorithm.fuse(server, sent, ctx)
    share = other.num_examples / (one.num_examples + other.num_examples)
    mean = fused.models[MODEL].params["extractor.1.weight"]
    torch.testing.assert_close(mean, torch.full_like(mean, 1 + 4 * share))


def with_extractor(update: Update, tensors: Tensors) -> Update:
    return replace(update, extra={**update.extra, EXTRACTOR: tensors})


def test_only_extractors_of_its_own_architecture_are_averaged() -> None:
    """Those of another began elsewhere: their mean would be of no use. Their features count all the same."""
    algorithm = small()
    server, ctx = begun(algorithm, ("mlp:8", "mlp:8-6"))
    sent = answers(algorithm, server, ctx)
    fused, facts = algorithm.fuse(server, sent, ctx)
    alone, _ = algorithm.fuse(server, [sent[0], sent[2]], ctx)
    name = "extractor.1.weight"
    assert torch.equal(fused.models[MODEL].params[name], alone.models[MODEL].params[name])
    assert facts.own["examples"] == sum(ctx.data.sizes)
    others, _ = algorithm.fuse(server, [sent[1]], ctx)
    assert torch.equal(others.models[MODEL].params[name], server.models[MODEL].params[name])


def test_facts_measure_the_mean_extractor_and_each_clients_own() -> None:
    algorithm = small()
    server, ctx = begun(algorithm)
    sent = answers(algorithm, server, ctx)
    fused, facts = algorithm.fuse(server, sent, ctx)
    net = ctx.nets.load(fused.models[MODEL], "test").eval()
    assert isinstance(net, Split)
    x, y = ctx.data.test.batch(torch.arange(20)), ctx.data.test.y[:20]

    def accuracy() -> float:
        return (net(x).argmax(1) == y).double().mean().item()

    assert facts.own["mean_extractor"] == pytest.approx(accuracy())
    own = []
    for update in sent:
        net.extractor.load_state_dict(update.extra[EXTRACTOR])
        own.append(accuracy())
    assert facts.own["own_extractors"] == pytest.approx({"mean": sum(own) / 4, "worst": min(own), "best": max(own)})
    assert "mean_extractor" not in small(probe=0).fuse(server, sent, ctx)[1].own


def test_identical_clients_are_more_to_learn_from() -> None:
    """Why the law of identical clients does not hold: a server that hears more features takes more steps."""
    algorithm = small()
    server, ctx = begun(algorithm)
    first = answers(algorithm, server, ctx)[0]
    _, one = algorithm.fuse(server, [first], ctx)
    _, four = algorithm.fuse(server, [replace(first, client=client) for client in range(4)], ctx)
    assert (one.own["examples"], four.own["examples"]) == (ctx.data.sizes[0], 4 * ctx.data.sizes[0])
    assert one.students[MODEL].steps < four.students[MODEL].steps


# What is not believed.

Spoil = Callable[[dict[str, dict[str, Tensor]]], None]


def set_to(group: str, name: str, change: Callable[[Tensor], Tensor]) -> Spoil:
    def spoil(extra: dict[str, dict[str, Tensor]]) -> None:
        extra[group][name] = change(extra[group][name])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (set_to(EXAMPLES, "features", lambda t: t[1:]), r"examples/features is torch.float32 \(\d+, 8\), expected"),
        (set_to(EXAMPLES, "features", lambda t: t * torch.inf), "not finite"),
        (set_to(EXAMPLES, "logits", lambda t: t[:, :2]), r"examples/logits is torch.float32 \(\d+, 2\), expected"),
        (set_to(EXAMPLES, "labels", lambda t: t + 2), "above 2"),
        (set_to(EXAMPLES, "labels", lambda t: t - 3), "below 0"),
        (set_to(EXAMPLES, "labels", lambda t: t.float()), "torch.float32"),
        (set_to(EXTRACTOR, "2.running_var", lambda t: -t - 1), "below 0"),
        (lambda extra: extra.pop(EXTRACTOR), "missing"),
    ],
)
def test_what_does_not_fit_is_refused(spoil: Spoil, reason: str) -> None:
    algorithm = small()
    server, ctx = begun(algorithm, ("mlp:8:bn",))
    good, bad = answers(algorithm, server, ctx)[:2]
    spoilt = {group: dict(tensors) for group, tensors in bad.extra.items()}
    spoil(spoilt)
    engine = Scripted([good, replace(bad, extra=spoilt)])
    fused, record = run_round(algorithm, server, engine, [0, 1], Vetting(), ctx)
    assert record.rejected.keys() == {"1"}
    assert re.search(reason, record.rejected["1"])
    alone, _ = algorithm.fuse(server, [good], ctx)
    assert all_bits(fused.models) == all_bits(alone.models)


def test_features_that_break_the_training_cost_the_round_and_not_the_run() -> None:
    algorithm = small()
    server, ctx = begun(algorithm)
    good, bad = answers(algorithm, server, ctx)[:2]
    huge = {**bad.extra, EXAMPLES: {**bad.extra[EXAMPLES], "features": torch.full((bad.num_examples, 8), 3e38)}}
    fused, facts = algorithm.fuse(server, [good, replace(bad, extra=huge)], ctx)
    assert "not finite" in facts.warning
    assert fused.round == 1
    assert all_bits(fused.models) == all_bits(server.models)
    assert fused.memory == server.memory


def test_nobody_heard_changes_nothing() -> None:
    algorithm = small()
    server, ctx = begun(algorithm)
    fused, facts = algorithm.fuse(server, [], ctx)
    assert "keeps its model" in facts.warning
    assert all_bits(fused.models) == all_bits(server.models)


# What suits it.


def test_architectures_whose_features_differ_are_refused() -> None:
    _, ctx = begun(archs=("mlp:8", "mlp:6"))
    with pytest.raises(FedfuseError, match=r"mlp:8 \(8,\), mlp:6 \(6,\)"):
        small().check(ctx)
    small().check(begun(archs=("mlp:8", "mlp:8-6"))[1])


def test_two_architectures_with_alike_features_keep_the_laws() -> None:
    reason = {"identical_clients_fuse_to_themselves": "more features are more steps of the server's net"}
    check_algorithm(small(), archs=("mlp:8", "mlp:8-6:bn"), exempt=reason)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"temperature": 0.0}, {"alpha": -1.0}, {"lr": 0.0}, {"epochs": 0}, {"weight_decay": -1.0}):
        with pytest.raises(FedfuseError, match="fedgkt"):
            small(**wrong)


def experiment(**models: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": 120, "classes": 3, "shape": [4]},
        partition={"clients": 3},
        models={"clients": "mlp:8", **models},
        local={"epochs": 1},
        algorithm={"name": "fedgkt", "epochs": 1},
        run={"rounds": 2, "workers": 1},
    )


def test_a_server_without_a_net_is_refused() -> None:
    with pytest.raises(FedfuseError, match="name its architecture"):
        fedfuse.check(experiment())


def test_the_server_may_have_the_clients_architecture() -> None:
    fedfuse.check(experiment(server="mlp:8"))


def test_the_model_of_a_run_is_one_net_from_inputs_to_logits(tmp_path: Path) -> None:
    run = fedfuse.run(experiment(server="mlp:16"), tmp_path / "run")
    loaded = fedfuse.load_model(tmp_path / "run" / "models" / "mlp-8-mlp-16.safetensors")
    assert loaded.arch == MODEL
    test = load_federation(experiment(server="mlp:16")).test
    with torch.no_grad():
        right = (loaded.net.eval()(test.batch(torch.arange(len(test)))).argmax(1) == test.y).double().mean().item()
    assert right == pytest.approx(run.final.test_accuracy)
    assert run.final.models[MODEL].accuracy == run.final.test_accuracy
