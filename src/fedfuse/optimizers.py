"""SGD and Adam by PyTorch's own functions, without the class around them.

The class imports PyTorch's compiler when it is made: two seconds and 70 MB in every process, be it that of a worker,
of a server, or the one that a Flower node starts for each message. Nothing here is compiled; the bits are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam: the defaults of its authors and of PyTorch


class Optimizer(ABC):
    """Steps on `parameters` at `rate`, which may be set anew before each. `fused` is one kernel for all of them."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], rate: float, *, weight_decay: float = 0.0, fused: bool = False
    ) -> None:
        self.parameters, self.rate = list(parameters), rate
        self._weight_decay, self._fused = weight_decay, fused

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step. A parameter without a gradient stays as it is, and so does what is remembered of it."""
        moved = [p for p in self.parameters if p.grad is not None]
        self._move(moved, [p.grad for p in moved if p.grad is not None])

    @abstractmethod
    def _move(self, moved: list[nn.Parameter], gradients: list[Tensor]) -> None: ...


class SGD(Optimizer):
    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        fused: bool = False,
    ) -> None:
        super().__init__(parameters, rate, weight_decay=weight_decay, fused=fused)
        self._momentum = momentum
        self._velocities: dict[nn.Parameter, Tensor | None] = {}

    def _move(self, moved: list[nn.Parameter], gradients: list[Tensor]) -> None:
        velocities = [self._velocities.get(p) for p in moved]
        if self._fused and any(v is not None for v in velocities):
            # The kernel begins all velocities at once. Of one that begins later, zeros are the same beginning.
            velocities = [torch.zeros_like(p) if v is None else v for p, v in zip(moved, velocities, strict=True)]
        sgd(
            list(moved), gradients, velocities, foreach=not self._fused, fused=self._fused,
            weight_decay=self._weight_decay, momentum=self._momentum, lr=self.rate, dampening=0.0,
            nesterov=False, maximize=False,
        )  # fmt: skip
        if self._momentum:
            self._velocities.update(zip(moved, velocities, strict=True))


@dataclass(frozen=True)
class _Moments:
    """What Adam remembers of one parameter."""

    first: Tensor
    second: Tensor
    largest: Tensor | None  # of the second, with amsgrad
    steps: Tensor

    @classmethod
    def none_yet(cls, parameter: nn.Parameter, amsgrad: bool, fused: bool) -> _Moments:
        largest = torch.zeros_like(parameter) if amsgrad else None
        # A kernel for all parameters reads the number of steps where they lie; the others want it at the CPU.
        steps = torch.zeros((), device=parameter.device if fused else "cpu")
        return cls(torch.zeros_like(parameter), torch.zeros_like(parameter), largest, steps)


class Adam(Optimizer):
    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: float,
        *,
        amsgrad: bool = False,
        weight_decay: float = 0.0,
        fused: bool = False,
    ) -> None:
        super().__init__(parameters, rate, weight_decay=weight_decay, fused=fused)
        self._amsgrad = amsgrad
        self._moments: dict[nn.Parameter, _Moments] = {}

    def _move(self, moved: list[nn.Parameter], gradients: list[Tensor]) -> None:
        for p in moved:
            if p not in self._moments:
                self._moments[p] = _Moments.none_yet(p, self._amsgrad, self._fused)
        moments = [self._moments[p] for p in moved]
        adam(
            list(moved), gradients,
            [m.first for m in moments], [m.second for m in moments],
            [m.largest for m in moments if m.largest is not None], [m.steps for m in moments],
            foreach=not self._fused, fused=self._fused, amsgrad=self._amsgrad, beta1=BETAS[0], beta2=BETAS[1],
            lr=self.rate, weight_decay=self._weight_decay, eps=EPSILON, maximize=False,
        )  # fmt: skip
