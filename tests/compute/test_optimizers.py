"""Our optimizers take the very steps of torch.optim's, and do not load the compiler that torch.optim loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfuse.compute.optimizers import SGD, Adam, Optimizer

Pair = tuple[Callable[[list[nn.Parameter]], Optimizer], Callable[[list[nn.Parameter]], torch.optim.Optimizer]]

PAIRS: dict[str, Pair] = {
    "sgd": (lambda p: SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, foreach=True)),
    "sgd with momentum": (
        lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=1e-2),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, foreach=True),
    ),
    "fused sgd": (
        lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, fused=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, fused=True),
    ),
    "adam": (
        lambda p: Adam(p, 0.01, weight_decay=1e-2),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=1e-2, foreach=True),
    ),
    "fused adam": (lambda p: Adam(p, 0.01, fused=True), lambda p: torch.optim.Adam(p, 0.01, fused=True)),
    "fused amsgrad": (
        lambda p: Adam(p, 0.01, weight_decay=1e-2, amsgrad=True, fused=True),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=1e-2, amsgrad=True, fused=True),
    ),
}


class Sometimes(nn.Module):
    """The second layer takes part in every other call only, the third never."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        hidden: torch.Tensor = self.first(x)
        return hidden if step % 2 else self.second(hidden.tanh())


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_steps_are_those_of_torch(pair: Pair) -> None:
    nets = Sometimes(), Sometimes()
    ours, theirs = pair[0](list(nets[0].parameters())), pair[1](list(nets[1].parameters()))
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    for step in range(12):
        rate = 0.1 / (step + 1)
        ours.rate, theirs.param_groups[0]["lr"] = rate, rate
        for net, optimizer in zip(nets, (ours, theirs), strict=True):
            optimizer.zero_grad()
            net(x, step).square().sum().backward()
            optimizer.step()
        for mine, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            assert torch.equal(mine, other), f"after step {step}"
    assert not torch.equal(nets[0].first.weight, Sometimes().first.weight)
    assert torch.equal(nets[0].third.weight, Sometimes().third.weight)


@pytest.mark.parametrize("fused", [False, True])
def test_a_parameter_may_take_its_first_step_later_than_others(fused: bool) -> None:
    early, late = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([1.0]))
    optimizer = SGD([early, late], 0.5, momentum=0.5, fused=fused)
    for taking_part in ([early], [early, late], [early, late]):
        optimizer.zero_grad()
        torch.stack(list(taking_part)).sum().backward()
        optimizer.step()
    assert early.item() == 1 - 0.5 * (1 + 1.5 + 1.75)
    assert late.item() == 1 - 0.5 * (1 + 1.5)


def test_no_gradient_is_recorded_through_a_step() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = SGD([weight], 0.5, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    assert weight.grad_fn is None
    assert weight.tolist() == [0.5, 0.5]


def test_a_run_does_not_load_the_compiler(tmp_path: Path) -> None:
    """FedDF trains clients by SGD and distils by Adam: with torch.optim's classes either would load it."""
    program = """
import sys
import fedfuse
experiment = fedfuse.Experiment(
    data={"source": "synthetic", "examples": 300, "shape": [8], "classes": 3, "pool": {"kind": "split", "size": 0.3}},
    partition={"scheme": "iid", "clients": 2}, models="mlp:8", local={"steps": 2, "batch_size": 8},
    algorithm={"name": "feddf", "steps": 4, "patience": 4, "batch_size": 16},
    run={"rounds": 1, "workers": 1},
)
fedfuse.run(experiment, sys.argv[1])
loaded = sorted(name for name in sys.modules if name.startswith("torch._dynamo"))
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], check=True, timeout=120)
