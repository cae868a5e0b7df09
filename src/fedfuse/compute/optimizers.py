"""SGD and Adam through PyTorch's own functions, without its optimizer classes.

Creating one of these imports PyTorch's compiler: two seconds and 70 MB in every process: of a worker, of a server,
or the one that a Flower node starts for each message. Nothing here is compiled; the bits are the same.
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
START, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000  # of the loss scale: the defaults of torch.amp.GradScaler


class LossScale:
    """A factor on the loss, so that gradients in float16 do not underflow (Micikevicius et al., 2018).

    A step whose gradients are not finite is skipped, and the factor is halved; after `interval` steps in a row that
    were not, it is doubled. As torch.amp.GradScaler, but nothing is read from the device: whether a step is skipped is
    a tensor there, which the optimizer's kernel reads.
    """

    def __init__(self, device: torch.device, start: float = START, interval: int = INTERVAL) -> None:
        self.factor = torch.full((), start, device=device)
        self.found_inf = torch.zeros((), device=device)  # 1 if a gradient of the current step is not finite
        self.skipped = torch.zeros((), device=device)  # the number of steps
        self._interval = interval
        self._finite_steps = torch.zeros((), dtype=torch.int32, device=device)  # in a row

    def unscale(self, gradients: list[Tensor]) -> None:
        """Divide the gradients by the factor, in place, and note whether one of them is not finite."""
        self.found_inf.zero_()
        if gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.found_inf, self.factor.reciprocal())

    def update(self) -> None:
        """Change the factor after a step."""
        self.skipped += self.found_inf
        torch._amp_update_scale_(self.factor, self._finite_steps, self.found_inf, GROWTH, BACKOFF, self._interval)


class Optimizer(ABC):
    """Steps on `parameters` with learning rate `rate`, which may change between steps.

    `fused` uses a single kernel; `scaled`, for nets in float16, scales the loss and is fused too.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: float,
        *,
        weight_decay: float = 0.0,
        fused: bool = False,
        scaled: bool = False,
    ) -> None:
        self.parameters, self.rate = list(parameters), rate
        self._weight_decay, self._fused = weight_decay, fused or scaled
        self.scale = LossScale(self.parameters[0].device) if scaled else None

    def minimise(self, loss: Tensor, clip: float | None = None) -> None:
        """Take one step down the gradient of `loss`, with its norm clipped to `clip`."""
        self.zero_grad()
        (loss if self.scale is None else loss * self.scale.factor).backward()  # type: ignore[no-untyped-call]
        if self.scale is not None:
            self.scale.unscale([p.grad for p in self.parameters if p.grad is not None])
        if clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, clip)
        self.step()
        if self.scale is not None:
            self.scale.update()

    def skipped(self) -> int:
        """Return the number of steps that were skipped. Reading it waits for the device."""
        return 0 if self.scale is None else int(self.scale.skipped)

    @property
    def _found_inf(self) -> Tensor | None:
        return None if self.scale is None else self.scale.found_inf

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step. A parameter without a gradient stays unchanged, and so does its state."""
        parameters = [p for p in self.parameters if p.grad is not None]
        self._step(parameters, [p.grad for p in parameters if p.grad is not None])

    @abstractmethod
    def _step(self, parameters: list[nn.Parameter], gradients: list[Tensor]) -> None: ...


class SGD(Optimizer):
    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        fused: bool = False,
        scaled: bool = False,
    ) -> None:
        super().__init__(parameters, rate, weight_decay=weight_decay, fused=fused, scaled=scaled)
        self._momentum = momentum
        self._velocities: dict[nn.Parameter, Tensor | None] = {}

    def _step(self, parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
        velocities = [self._velocities.get(p) for p in parameters]
        skips = self.scale is not None and bool(self._momentum)
        if self._fused and (skips or any(v is not None for v in velocities)):
            # The kernel initialises all velocities or none, and none in a step that it skips. Zeros have the same
            # effect.
            velocities = [torch.zeros_like(p) if v is None else v for p, v in zip(parameters, velocities, strict=True)]
        sgd(
            list(parameters), gradients, velocities, foreach=not self._fused, fused=self._fused,
            weight_decay=self._weight_decay, momentum=self._momentum, lr=self.rate, dampening=0.0,
            nesterov=False, maximize=False, found_inf=self._found_inf,
        )  # fmt: skip
        if self._momentum:
            self._velocities.update(zip(parameters, velocities, strict=True))


@dataclass(frozen=True)
class _Moments:
    """Adam's state of one parameter."""

    first: Tensor
    second: Tensor
    largest: Tensor | None  # the maximum of the second, with amsgrad
    steps: Tensor

    @classmethod
    def zeros(cls, parameter: nn.Parameter, amsgrad: bool, fused: bool) -> _Moments:
        largest = torch.zeros_like(parameter) if amsgrad else None
        # The fused kernel reads the number of steps on the parameters' device; the others need it on the CPU.
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
        scaled: bool = False,
    ) -> None:
        super().__init__(parameters, rate, weight_decay=weight_decay, fused=fused, scaled=scaled)
        self._amsgrad = amsgrad
        self._moments: dict[nn.Parameter, _Moments] = {}

    def _step(self, parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
        for p in parameters:
            if p not in self._moments:
                self._moments[p] = _Moments.zeros(p, self._amsgrad, self._fused)
        moments = [self._moments[p] for p in parameters]
        adam(
            list(parameters), gradients,
            [m.first for m in moments], [m.second for m in moments],
            [m.largest for m in moments if m.largest is not None], [m.steps for m in moments],
            foreach=not self._fused, fused=self._fused, amsgrad=self._amsgrad, beta1=BETAS[0], beta2=BETAS[1],
            lr=self.rate, weight_decay=self._weight_decay, eps=EPSILON, maximize=False, found_inf=self._found_inf,
        )  # fmt: skip
