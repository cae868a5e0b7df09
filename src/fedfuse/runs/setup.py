"""Build what a run needs from an experiment: its algorithm, its data, and the context of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedfuse import models, rng
from fedfuse.algorithm import Algorithm, Roles, check_parts
from fedfuse.bounds import OutOfBoundsError
from fedfuse.compute import devices
from fedfuse.compute.batches import Batch
from fedfuse.compute.threads import cores, threads
from fedfuse.config.experiment import Experiment
from fedfuse.config.named import ConfigError, Problem
from fedfuse.context import Context, FreshPool, Nets, assign
from fedfuse.data.discrepancy import ClientDiscrepancies
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation, federate
from fedfuse.data.sources import load_from
from fedfuse.data.sources.location import Location
from fedfuse.data.texts.encoding import encode_federation
from fedfuse.fusion.distillers import DoesNotFitError
from fedfuse.local.uploads import check_uploads
from fedfuse.models import precision, processor
from fedfuse.models.precision import Precision
from fedfuse.packing import FULL
from fedfuse.runs.fit import fit, key_of
from fedfuse.select import cohort_size
from fedfuse.tracking import is_installed
from fedfuse.types import FedfuseError

WORKERS_PER_CORE = 8  # worker processes: each holds PyTorch and its clients' models


@dataclass(frozen=True)
class Setup:
    """An experiment that is ready to run: its algorithm is built, and its data is loaded and partitioned."""

    experiment: Experiment
    algorithm: Algorithm
    roles: Roles
    ctx: Context
    notes: tuple[str, ...] = ()  # settings of the algorithm that were fitted to the data, one line each

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
        archs, precisions = _assign_models(self.experiment, self.algorithm, self.ctx.data, capability)
        return replace(self, ctx=replace(self.ctx, archs=archs, precisions=precisions))


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
    trained = dict.fromkeys(arch + setup.ctx.precision(k).net for k, arch in enumerate(setup.ctx.archs))
    for key, arch in [*(("clients", arch) for arch in {**dict(roles.clients), **trained}), *server]:
        try:
            models.check(arch, classes=train.classes, shape=train.shape, samples=_samples(setup.federation))
        except FedfuseError as error:
            raise ConfigError([Problem(f"models.{key}", arch, str(error))]) from error
    check_uploads(setup.ctx)
    try:
        check_parts(setup.algorithm, setup.ctx)
    except DoesNotFitError as error:
        raise DoesNotFitError(error.text, lambda name: key_of(setup.experiment, name) or name) from error


def _samples(federation: Federation) -> dict[str, Batch]:
    """Return inputs to try nets on, by what they are.

    Of mappings the first, and those with the least and the greatest numbers: a token id that a net does not know would
    otherwise end the run in the round that meets it.
    """
    train = federation.train
    if isinstance(train.x, Tensor):
        return {f"2 inputs of shape {train.shape}": torch.zeros(2, *train.shape)}
    samples = {f"2 inputs of shape {train.shape}": train.batch(torch.zeros(2, dtype=torch.int64))}
    splits = {"training": train, "validation": federation.validation, "test": federation.test}
    if federation.pool is not None:
        splits["pool"] = federation.pool
    for split, examples in splits.items():
        for name, rows in examples.extremes().items():
            what = f"{split} examples {rows[0]} and {rows[1]}, which have the least and the greatest {name}"
            samples[what] = examples.batch(torch.tensor(rows))
    return samples


def _check_run(setup: Setup) -> None:
    """Raise an error if the machine lacks what [run] asks for, or the federation is too small for it."""
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
    for name in run.track:
        if not is_installed(name):
            problems.append(Problem("run.track", name, f'is not installed: pip install "fedfuse[{name}]"'))
    if problems:
        raise ConfigError(problems)


def set_up(experiment: Experiment, federation: Federation, device: torch.device | None = None) -> Setup:
    """Build the algorithm and the context for this federation. They are the same in every process of a run.

    Settings that the user left to their defaults are fitted to the data.
    device: where this process computes, instead of the experiment's device.
    """
    algorithm = _build(experiment)
    experiment, notes = fit(experiment, algorithm, federation)
    algorithm = _build(experiment) if notes else algorithm
    roles = _roles(experiment, algorithm)
    column = experiment.models.capability
    capability = None if column is None else federation.client_means(column)
    archs, precisions = _assign_models(experiment, algorithm, federation, capability)
    ctx = Context(
        experiment.run.seed,
        experiment.run.rounds,
        experiment.local,
        federation,
        archs,
        _nets(experiment, federation, device),
        fresh_pool=_fresh_pool(experiment, federation.train),
        small_models=roles.small_models,
        server=roles.server,
        precisions=precisions,
        evaluate_every=experiment.run.evaluate_every,
        discrepancies=ClientDiscrepancies(federation, experiment.run.seed) if experiment.run.discrepancy else None,
    )
    return Setup(experiment, algorithm, roles, ctx, notes)


def _build(experiment: Experiment) -> Algorithm:
    """Build the algorithm. A setting that is out of its bounds is named by its full key."""
    try:
        return experiment.algorithm.build()
    except OutOfBoundsError as error:
        key = f"algorithm.{error.setting}"
        raise FedfuseError(f"{key}: {error}" if experiment.states(key) else str(error)) from error


def _nets(experiment: Experiment, federation: Federation, device: torch.device | None) -> Nets:
    train, run = federation.train, experiment.run
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(run.precision)
    return Nets(train.classes, train.shape, device=device or devices.resolve(run.device), precision=dtype)


def load_federation(experiment: Experiment, location: Location | None = None) -> Federation:
    """Load the data and partition it between the clients."""
    location = location or Location.at()
    pool = experiment.data.pool
    federation = federate(
        load_from(location, experiment.data.source, experiment.data.settings, users=_user_columns(experiment)),
        scheme=partial(experiment.partition.function(), **experiment.partition.settings),
        clients=experiment.partition.clients,
        validation=experiment.data.validation,
        keep=experiment.partition.keep,
        pool=None if pool is None else partial(pool.function(), location=location, **pool.settings),
        seed=experiment.run.seed,
    )
    if federation.train.texts is not None:
        return _encoded(experiment, federation, location)
    statistics = _processor_statistics(experiment, federation.train)
    if statistics is None:
        return federation
    sets = (federation.train, federation.validation, federation.test)
    train, validation, test = (_with_statistics(examples, statistics) for examples in sets)
    unlabeled = None if federation.pool is None else _with_statistics(federation.pool, statistics)
    return replace(federation, train=train, validation=validation, test=test, pool=unlabeled)


def _user_columns(experiment: Experiment) -> tuple[str, ...]:
    """Return the columns by which clients, pool or capabilities are told apart."""
    partition, pool = experiment.partition, experiment.data.pool
    columns = [
        partition.settings.get("column") if partition.scheme == "column" else None,
        None if pool is None else pool.settings.get("column"),
        experiment.models.capability,
    ]
    return tuple(dict.fromkeys(column for column in columns if column is not None))


def _architectures(experiment: Experiment) -> list[str]:
    """Return all architectures that the experiment names, as the server knows them."""
    server = experiment.models.server
    return [*_plain_weights(experiment), *([server] if server else [])]


def _processor_statistics(experiment: Experiment, train: Examples) -> processor.Normalisation | None:
    """Return mean and deviation of images as the processors of pretrained nets state them; None if none does."""
    if experiment.data.normalise == "data" or not isinstance(train.x, Tensor) or train.x.dtype != torch.uint8:
        return None
    return processor.normalisation_of_models(_architectures(experiment), train.shape[0])


def _with_statistics(examples: Examples, statistics: processor.Normalisation) -> Examples:
    mean, std = statistics
    return replace(examples, mean=torch.tensor(mean), std=torch.tensor(std))


def _encoded(experiment: Experiment, federation: Federation, location: Location) -> Federation:
    """Encode the texts of a federation that is split already: a tokenizer may learn from its pool only."""
    data = experiment.data
    return encode_federation(
        federation,
        tokenizer=data.tokenizer,
        vocabulary=data.vocabulary,
        max_length=data.max_length,
        archs=_architectures(experiment),
        location=location,
    )


def _roles(experiment: Experiment, algorithm: Algorithm) -> Roles:
    server = experiment.models.server
    try:
        roles = algorithm.models(_plain_weights(experiment), server)
    except FedfuseError as error:
        raise ConfigError([Problem("models.server", server, f"{algorithm.name}: {error}")]) from error
    if roles.server in roles.clients:
        right = "is also an architecture of the clients: choose another one for the server"
        raise ConfigError([Problem("models.server", server, right)])
    return roles


def _plain_weights(experiment: Experiment) -> dict[str, float]:
    """Return the clients' architectures as the server knows them, with their weights."""
    weights: dict[str, float] = {}
    for name, weight in experiment.models.weights.items():
        arch, _ = precision.split(name)
        weights[arch] = weights.get(arch, 0) + weight
    return weights


def _assign_models(
    experiment: Experiment, algorithm: Algorithm, federation: Federation, capability: Tensor | None
) -> tuple[tuple[str, ...], tuple[Precision, ...]]:
    """Return the architecture of each client, and how it trains and uploads: both by its name in `models.clients`."""
    weights, server = experiment.models.weights, experiment.models.server
    generator = rng.generator(experiment.run.seed, "architectures")
    names = assign(weights, len(federation.parts), generator, capability)
    archs, precisions = {}, {}
    for name in weights:
        plain, own = precision.split(name)
        (archs[name],) = algorithm.models({plain: 1.0}, server).clients
        precisions[name] = own or Precision(experiment.local.upload)
    if experiment.local.upload != FULL and all(precision.split(name)[1] for name in weights):
        right = "every architecture in models.clients says how it uploads: leave this out"
        raise ConfigError([Problem("local.upload", experiment.local.upload, right)])
    return tuple(archs[name] for name in names), tuple(precisions[name] for name in names)


def _fresh_pool(experiment: Experiment, train: Examples) -> FreshPool | None:
    """Return a function that draws a pool per round, if the pool's settings say `fresh`."""
    pool = experiment.data.pool
    if pool is None or not pool.settings.get("fresh"):
        return None
    function, settings = pool.function(), pool.settings
    statistics = _processor_statistics(experiment, train)

    def draw(generator: torch.Generator) -> Examples:
        fresh: Examples = function(train, generator, location=Location.at(), **settings).pool
        return fresh if statistics is None else _with_statistics(fresh, statistics)

    return FreshPool(draw)
