"""Posteriors: the client models -> a distribution over global models, to sample teachers from (FedBE, section 3.3).

Each is fitted to a stream: `start` gives a running posterior that takes one model of one architecture at a time and
keeps none; its value is a `Sampler`. `fit` does the same for a collection of models. Batch-norm statistics of a sample
are those of the mean: a sampled running variance could be negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Protocol

import torch
from torch import Tensor

from fedfuse import bounds, tree
from fedfuse import rng as randomness
from fedfuse.types import FedfuseError, Snapshot, Tensors


class Sampler(Protocol):
    def sample(self, rng: torch.Generator, number: int = 0) -> Snapshot:
        """Draw a model. `number` counts samples from 0: some posteriors draw their shares while clients are added."""


class RunningPosterior(Protocol):
    """The posterior of one round and one architecture."""

    def add(self, model: Snapshot, weight: float, rng: torch.Generator) -> None:
        """Add one client model. Each client has its own `rng`, so the order of clients does not matter."""

    def value(self) -> Sampler: ...


class Posterior(Protocol):
    def start(self, count: int, base: Snapshot) -> RunningPosterior:
        """Start a posterior for `count` samples, over client models that were all trained from `base`."""


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions of the parameters."""

    mean: Snapshot
    std: Tensors

    def sample(self, rng: torch.Generator, number: int = 0) -> Snapshot:
        params = tree.map_trees(lambda m, s: m + s * _normal(m, rng), self.mean.params, self.std)
        return replace(self.mean, params=params)


@dataclass(frozen=True)
class DiagonalGaussian:
    """Eq. 5, or with n_k as weights Eq. 11: mean and variance of each parameter over the client models."""

    scale: float = 1.0  # multiplies the standard deviation

    def __post_init__(self) -> None:
        bounds.not_negative(self, "0 samples the mean", scale=self.scale)

    def start(self, count: int, base: Snapshot) -> RunningPosterior:
        return _Moments(self.scale)

    def fit(self, models: Iterable[Snapshot], weights: Sequence[float] | None = None) -> Sampler:
        moments = _Moments(self.scale)
        for model, weight in _weighted(models, weights):
            moments.add(model, weight)
        return moments.value()


class _Moments:
    """Weighted mean and variance in one pass (West, 1979), in double precision."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._mean = tree.RunningSnapshots()
        self._squares: dict[str, Tensor] = {}

    def add(self, model: Snapshot, weight: float, rng: torch.Generator | None = None) -> None:
        running = self._mean.params.get(model.arch)
        if running is None:
            self._squares = tree.map_trees(lambda t: torch.zeros_like(t, dtype=torch.float64), model.params)
            self._mean.add(model, weight)
            return
        before = tree.map_trees(lambda t, mean: t.double() - mean, model.params, running.mean)
        self._mean.add(model, weight)
        for name, squares in self._squares.items():
            squares.addcmul_(before[name], model.params[name].double() - running.mean[name], value=weight)

    def value(self) -> Gaussian:
        (mean,) = self._mean.value().values()
        total = self._mean.params[mean.arch].weight
        std = tree.map_trees(
            lambda m, squares: (squares / total).clamp_(min=0).sqrt_().mul_(self._scale).to(m.dtype),
            mean.params,
            self._squares,
        )
        return Gaussian(mean, std)


@dataclass(frozen=True)
class DirichletMixture:
    """Eq. 7, or with n_k as weights Eq. 12: mixtures of the client models, shares from Dirichlet(alpha, ..., alpha).

    Dirichlet shares are gamma draws divided by their sum, so each sample is a running mean whose weights are drawn as
    clients are added. `fit`, whose sampler gives any number of samples, keeps the models instead.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        bounds.positive(self, alpha=self.alpha)

    def start(self, count: int, base: Snapshot) -> RunningPosterior:
        return _Mixtures(self.alpha, count)

    def fit(self, models: Iterable[Snapshot], weights: Sequence[float] | None = None) -> Sampler:
        pairs = list(_weighted(models, weights))
        return _MixtureSampler(self.alpha, [model for model, _ in pairs], [weight for _, weight in pairs])


class _Mixtures:
    """One running mean of parameters per sample, and one of buffers for all samples. It is its own sampler."""

    def __init__(self, alpha: float, count: int) -> None:
        self._alpha = alpha
        self._params = [tree.RunningMean() for _ in range(count)]
        self._mean = tree.RunningMean()
        self._arch = ""

    def add(self, model: Snapshot, weight: float, rng: torch.Generator) -> None:
        self._arch = model.arch
        self._mean.add(model.buffers, weight)
        for mixture, gamma in zip(self._params, _gammas(self._alpha, len(self._params), rng), strict=True):
            mixture.add(model.params, weight * gamma)

    def value(self) -> Sampler:
        return self

    def sample(self, rng: torch.Generator, number: int = 0) -> Snapshot:
        return Snapshot(self._arch, self._params[number].value(), self._mean.value())


@dataclass(frozen=True)
class _MixtureSampler:
    alpha: float
    models: Sequence[Snapshot]
    weights: Sequence[float]

    def sample(self, rng: torch.Generator, number: int = 0) -> Snapshot:
        params, buffers = tree.RunningMean(), tree.RunningMean()
        gammas = _gammas(self.alpha, len(self.models), rng)
        for model, weight, gamma in zip(self.models, self.weights, gammas, strict=True):
            params.add(model.params, weight * gamma)
            buffers.add(model.buffers, weight)
        return Snapshot(self.models[0].arch, params.value(), buffers.value())


@dataclass(frozen=True)
class DeltaGaussian:
    """FedBE's released code (swag.py), not its paper: a Gaussian over directions away from the previous model.

    Each tensor's step from the previous model is divided by its norm; mean and variance of these directions are
    unweighted, the variance is at least `floor`, and a sample is the previous model + mean norm * (mean direction +
    scale * std * noise). This differs where the code divides by zero (a tensor that did not move has no direction) and
    in batch-norm statistics, which the code samples too.
    """

    scale: float = 0.1
    floor: float = 1e-5

    def __post_init__(self) -> None:
        bounds.not_negative(self, scale=self.scale, floor=self.floor)

    def start(self, count: int, base: Snapshot) -> RunningPosterior:
        return _Directions(self.scale, self.floor, base)

    def fit(
        self, models: Iterable[Snapshot], weights: Sequence[float] | None = None, *, base: Snapshot | None = None
    ) -> Sampler:
        """`base` is the previous global model, from which the clients were trained; `weights` are not used."""
        if base is None:
            raise FedfuseError("DeltaGaussian.fit needs the previous model: give it as base=")
        directions = _Directions(self.scale, self.floor, base)
        for model, _ in _weighted(models, weights):
            directions.add(model)
        return directions.value()


class _Directions:
    def __init__(self, scale: float, floor: float, base: Snapshot) -> None:
        self._floor = floor
        self._base = base
        self._moments = _Moments(scale=1.0)
        self._scale = scale
        self._norms = tree.RunningMean()

    def add(self, model: Snapshot, weight: float = 1.0, rng: torch.Generator | None = None) -> None:
        steps = tree.subtract(model.params, self._base.params)
        norms = {name: step.norm() for name, step in steps.items()}
        directions = {name: step / norm if (norm := norms[name]) > 0 else step for name, step in steps.items()}
        self._norms.add(norms, 1.0)
        self._moments.add(Snapshot(model.arch, directions, model.buffers), 1.0)

    def value(self) -> Gaussian:
        direction, norms = self._moments.value(), self._norms.value()
        least = math.sqrt(self._floor)
        mean, std = {}, {}
        for name, base in self._base.params.items():
            mean[name] = base + norms[name] * direction.mean.params[name]
            std[name] = direction.std[name].clamp(min=least) * norms[name] * self._scale
        return Gaussian(Snapshot(self._base.arch, mean, direction.mean.buffers), std)


def _weighted(models: Iterable[Snapshot], weights: Sequence[float] | None) -> Iterator[tuple[Snapshot, float]]:
    """Yield models with their weights. There must be at least one, and all of one architecture."""
    first = None
    for model, weight in zip(models, repeat(1.0) if weights is None else weights, strict=weights is not None):
        first = first or model.arch
        if model.arch != first:
            raise FedfuseError(f"a posterior was given a {first} and a {model.arch}: fit one for each architecture")
        yield model, weight
    if first is None:
        raise FedfuseError("a posterior was given no model: give at least one")


def _gammas(alpha: float, count: int, rng: torch.Generator) -> list[float]:
    with randomness.ambient(rng):
        shape = torch.full((count,), alpha, dtype=torch.float64)
        draws: list[float] = torch.distributions.Gamma(shape, 1.0).sample().tolist()
    return draws


def _normal(like: Tensor, rng: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=rng, dtype=like.dtype)
