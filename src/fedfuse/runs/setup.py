"""Build what a run needs from an experiment: its algorithm, its data, and the context of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedfuse import devices, models, rng
from fedfuse.algorithm import Algorithm, Roles, check_parts
from fedfuse.config.experiment import Experiment
from fedfuse.config.named import ConfigError, Problem
from fedfuse.context import Context, FreshPool, Nets, assign
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation, federate
from fedfuse.data.sources import load_from
from fedfuse.data.sources.location import Location
from fedfuse.select import cohort_size
from fedfuse.threads import cores, threads
from fedfuse.types import FedfuseError

WORKERS_PER_CORE = 8  # worker processes: each holds PyTorch and its clients' models


@dataclass(frozen=True)
class Setup:
    """An experiment that is ready to run: its algorithm is built, and its data is loaded and partitioned."""

    experiment: Experiment
    algorithm: Algorithm
    roles: Roles
    ctx: Context

    @property
    def federation(self) -> Federation:
        return self.ctx.data

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Compute with the experiment's threads, precision and algorithms, inside the block."""
        run = self.experiment.run
        with threads(run.threads), devices.arithmetic(self.ctx.nets.device, run.precision, run.deterministic):
            yield

    def with_capability(self, capability: Tensor | None) -> Setup:
        """Assign architectures by the clients' own capabilities (K,), unless the experiment names a column for that."""
        if capability is None or self.experiment.models.capability is not None:
            return self
        archs = _assign_architectures(self.experiment, self.roles, self.ctx.data, capability)
        return replace(self, ctx=replace(self.ctx, archs=archs))


def check(experiment: Experiment, location: Location | None = None) -> Setup:
    """Check everything without training: data, partition, models and algorithm resolve and fit together."""
    setup = set_up(experiment, load_federation(experiment, location))
    check_setup(setup)
    return setup


def check_setup(setup: Setup) -> None:
    """Raise an error for everything that would end the run and can be known before it begins."""
    _check_run(setup)
    train, roles = setup.federation.train, setup.roles
    server = [("server", roles.server)] if roles.server else []
    for key, arch in [*(("clients", arch) for arch in roles.clients), *server]:
        try:
            sample = None if isinstance(train.x, Tensor) else train.batch(torch.zeros(2, dtype=torch.int64))
            models.check(arch, classes=train.classes, shape=train.shape, sample=sample)
        except FedfuseError as error:
            raise ConfigError([Problem(f"models.{key}", arch, str(error))]) from error
    check_parts(setup.algorithm, setup.ctx)


def _check_run(setup: Setup) -> None:
    """Raise an error if the machine or the federation is too small for the settings of [run]."""
    run, machine = setup.experiment.run, cores()
    cohort = cohort_size(len(setup.federation), run.fraction)
    problems = []
    if run.threads > machine:
        problems.append(
            Problem("run.threads", run.threads, f"this machine has {machine} cores: give at most {machine}")
        )
    if run.workers > WORKERS_PER_CORE * machine:
        most = WORKERS_PER_CORE * machine
        problems.append(Problem("run.workers", run.workers, f"{machine} cores cannot use so many: give at most {most}"))
    if run.quorum > cohort:
        right = f"a round asks {cohort} of {len(setup.federation)} clients: lower it, or raise run.fraction"
        problems.append(Problem("run.quorum", run.quorum, right))
    if problems:
        raise ConfigError(problems)


def set_up(experiment: Experiment, federation: Federation, device: torch.device | None = None) -> Setup:
    """Build the algorithm and the context for this federation. They are the same in every process of a run.

    device: where this process computes, instead of the experiment's device.
    """
    algorithm = experiment.algorithm.build()
    roles = _roles(experiment, algorithm)
    column = experiment.models.capability
    capability = None if column is None else federation.client_means(column)
    ctx = Context(
        experiment.run.seed,
        experiment.run.rounds,
        experiment.local,
        federation,
        _assign_architectures(experiment, roles, federation, capability),
        _nets(experiment, federation, device),
        fresh_pool=_fresh_pool(experiment, federation.train),
        small_models=roles.small_models,
        server=roles.server,
    )
    return Setup(experiment, algorithm, roles, ctx)


def _nets(experiment: Experiment, federation: Federation, device: torch.device | None) -> Nets:
    train, run = federation.train, experiment.run
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(run.precision)
    return Nets(train.classes, train.shape, device=device or devices.chosen(run.device), precision=dtype)


def load_federation(experiment: Experiment, location: Location | None = None) -> Federation:
    """Load the data and partition it between the clients."""
    location = location or Location.at()
    pool = experiment.data.pool
    return federate(
        load_from(location, experiment.data.source, experiment.data.settings),
        scheme=partial(experiment.partition.function(), **experiment.partition.settings),
        clients=experiment.partition.clients,
        validation=experiment.data.validation,
        pool=None if pool is None else partial(pool.function(), location=location, **pool.settings),
        seed=experiment.run.seed,
    )


def _roles(experiment: Experiment, algorithm: Algorithm) -> Roles:
    server = experiment.models.server
    try:
        roles = algorithm.models(experiment.models.weights, server)
    except FedfuseError as error:
        raise ConfigError([Problem("models.server", server, f"{algorithm.name}: {error}")]) from error
    if roles.server in roles.clients:
        right = "is also an architecture of the clients: choose another one for the server"
        raise ConfigError([Problem("models.server", server, right)])
    return roles


def _assign_architectures(
    experiment: Experiment, roles: Roles, federation: Federation, capability: Tensor | None
) -> tuple[str, ...]:
    generator = rng.generator(experiment.run.seed, "architectures")
    return assign(roles.clients, len(federation.parts), generator, capability)


def _fresh_pool(experiment: Experiment, train: Examples) -> FreshPool | None:
    """Return a function that draws a pool per round, if the pool's settings say `fresh`."""
    pool = experiment.data.pool
    if pool is None or not pool.settings.get("fresh"):
        return None
    function, settings = pool.function(), pool.settings
    return FreshPool(lambda generator: function(train, generator, location=Location.at(), **settings).pool)
