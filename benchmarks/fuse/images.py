"""Fuse a ResNet-8, a ConvNet and a LeNet that were trained on different parts of CIFAR-10.

    FEDFUSE_DATA=FOLDER python benchmarks/fuse/images.py [--seeds 2] [--data-dir FOLDER] [--out DIR]

Each teacher has images mostly of its own third of the classes, and few of the others. The pool are other training
images without labels. The student is a ResNet-8. The bound is a ResNet-8 that is trained on the labeled images of all
teachers, with as many steps as the student. A second part fuses three LeNets from one initialisation, whose weights
can also be averaged. Writes results.json.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from results import Results
from torch import Tensor, nn
from training import Labeled, Training, average, ensemble, logits, parameters

import fedfuse
from fedfuse import models, rng
from fedfuse.data.sources import load
from fedfuse.data.sources.source import Source
from fedfuse.evaluate import accuracy
from fedfuse.fusion.distillers import AdamCosine

THIRDS = ((0, 1, 2), (3, 4, 5), (6, 7, 8, 9))
TEACHERS = ("resnet8", "convnet", "lenet")
STUDENT, COMMON = "resnet8", "lenet"
SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Scale:
    own: int = 3_200  # images of a teacher's own classes
    others: int = 800
    pool: int = 8_000
    validation: int = 500
    test: int = 10_000
    teacher_steps: int = 600
    student_steps: int = 1_000
    batch_size: int = 64

    def __str__(self) -> str:
        return (
            f"each teacher {self.own + self.others:,} labeled images ({self.own:,} of its own third of the classes), "
            f"{self.teacher_steps} steps; pool of {self.pool:,} unlabeled images; validation {self.validation}; "
            f"student and bound {self.student_steps:,} steps; batches of {self.batch_size}; test {self.test:,}"
        )


@dataclass(frozen=True)
class Split:
    """Disjoint parts of the data."""

    teachers: list[tuple[Tensor, Tensor]]
    pool: Tensor  # (N, 3, 32, 32)
    validation: Labeled
    test: Labeled

    @staticmethod
    def of(source: Source, scale: Scale, seed: int) -> Split:
        y = source.train.y
        free = torch.randperm(len(y), generator=rng.generator(seed, "split"))
        parts = []
        for third in THIRDS:
            own = torch.isin(y[free], torch.tensor(third))
            index = torch.cat([free[own][: scale.own], free[~own][: scale.others]])
            free = free[~torch.isin(free, index)]
            parts.append((source.train.batch(index), y[index]))
        validation, free = free[: scale.validation], free[scale.validation :]
        test = torch.arange(len(source.test))[: scale.test]
        return Split(
            parts,
            source.train.batch(free[: scale.pool]),
            (source.train.batch(validation), y[validation]),
            (source.test.batch(test), source.test.y[test]),
        )


def build(name: str, seed: int, who: str) -> nn.Module:
    with rng.ambient(rng.generator(seed, "initial weights", who)):
        return models.build(name, classes=10, shape=SHAPE).to(memory_format=torch.channels_last)


def run(results: Results, source: Source, scale: Scale, seed: int) -> None:
    """Measure all models of one seed."""
    split = Split.of(source, scale, seed)
    x, y = split.test
    train = Training(scale.teacher_steps, scale.batch_size, augment="flip")
    longer = Training(scale.student_steps, scale.batch_size, augment="flip")
    distiller = AdamCosine(
        steps=scale.student_steps, batch_size=scale.batch_size, patience=scale.student_steps, augment="flip"
    )
    size = f"{scale.own + scale.others:,} labeled"

    def train_nets(names: tuple[str, ...], initial: nn.Module | None, group: str) -> list[nn.Module]:
        nets = []
        for number, (name, part) in enumerate(zip(names, split.teachers, strict=True)):
            net = build(name, seed, f"teacher {number}") if initial is None else copy.deepcopy(initial)
            with results.timed():
                nets.append(train(net, part, seed))
            share = accuracy(logits(net, x), y)
            results.add(f"{group}teacher {'ABC'[number]}", name, parameters(net), size, train.steps, share)
        return nets

    def fused(nets: list[nn.Module], student: nn.Module, name: str, group: str) -> None:
        with results.timed():
            result = fedfuse.fuse(
                nets, student, split.pool, distiller=distiller, validation=split.validation, seed=seed
            )
        pool = f"{scale.pool:,} unlabeled"
        share = accuracy(logits(result.model, x), y)
        results.add(f"{group}fused student", name, parameters(student), pool, result.steps, share)

    def together(nets: list[nn.Module], group: str) -> None:
        share = accuracy(ensemble([logits(net, x) for net in nets], [None] * len(nets)), y)
        results.add(f"{group}ensemble", "all three", sum(map(parameters, nets)), "", None, share)

    nets = train_nets(TEACHERS, None, "")
    together(nets, "")
    student = build(STUDENT, seed, "student")
    fused(nets, student, STUDENT, "")
    union = torch.cat([part[0] for part in split.teachers]), torch.cat([part[1] for part in split.teachers])
    bound = copy.deepcopy(student)
    with results.timed():
        longer(bound, union, seed, split.validation)
    share = accuracy(logits(bound, x), y)
    results.add("trained on all labels", STUDENT, parameters(bound), f"{len(union[1]):,} labeled", longer.steps, share)

    group, initial = "one architecture: ", build(COMMON, seed, "common")
    nets = train_nets((COMMON,) * 3, initial, group)
    share = accuracy(logits(average(nets), x), y)
    results.add(f"{group}average of weights", COMMON, parameters(initial), "", None, share)
    together(nets, group)
    fused(nets, average(nets), COMMON, group)


def main(arguments: list[str] | None = None, scale: Scale | None = None) -> None:
    """`scale` is for a test of this script at another size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--data-dir", type=Path, help="folder with cifar10 in it; by default FEDFUSE_DATA")
    options.add_argument("--out", type=Path, default=Path("runs/fuse"))
    given = options.parse_args(arguments)
    torch.set_num_threads(1)
    scale = scale or Scale()
    source = load("cifar10", data_dir=given.data_dir)
    results = Results("CIFAR-10", str(scale))
    for seed in range(given.seeds):
        run(results, source, scale, seed)
        results.save(given.out, seed + 1)
    results.print(given.seeds)


if __name__ == "__main__":
    main()
