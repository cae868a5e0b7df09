"""Training with labels, and accuracy on test data, for texts and images alike."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.compute.batches import Batch, forward, images_of, length, rows_of
from fedfuse.data.augment import augmentation
from fedfuse.evaluate import accuracy
from fedfuse.fusion.table import TensorPool
from fedfuse.predict import predict

CLIP = 5.0  # the largest norm of a gradient, as in AdamCosine
Labeled = tuple[Batch, Tensor]  # inputs, labels (N,)


@dataclass(frozen=True)
class Training:
    """Adam with cosine annealing, as `AdamCosine` has for the student."""

    steps: int
    batch_size: int
    lr: float = 1e-3
    augment: str = "none"
    every: int = 100  # steps between two validations

    def __call__(self, net: nn.Module, data: Labeled, seed: int, validation: Labeled | None = None) -> nn.Module:
        """Train the net in place. With validation data, keep the state with the best accuracy on it."""
        x, y = data
        change = augmentation(self.augment, tuple(x.shape[1:]) if isinstance(x, Tensor) else ())
        order, changes = rng.generator(seed, "order"), rng.generator(seed, "augment")
        adam = torch.optim.Adam(net.parameters(), self.lr)
        best, best_state = -1.0, None
        net.train()
        with rng.ambient(rng.generator(seed, "dropout")):
            for step in range(self.steps):
                adam.param_groups[0]["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * step / self.steps))
                index = torch.randint(len(y), (self.batch_size,), generator=order)
                batch = rows_of(x, index)
                if self.augment != "none":
                    batch = change(images_of(batch), changes)
                adam.zero_grad()
                F.cross_entropy(forward(net, batch), y[index]).backward()
                nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                adam.step()
                if validation is not None and ((step + 1) % self.every == 0 or step + 1 == self.steps):
                    share = accuracy(logits(net, validation[0]), validation[1])
                    if share > best:
                        best, best_state = share, copy.deepcopy(net.state_dict())
        if best_state is not None:
            net.load_state_dict(best_state)
        return net.eval()


def logits(net: nn.Module, x: Batch) -> Tensor:
    """Return the logits (N, C), computed in eval mode."""
    return predict(net, TensorPool(x), torch.arange(length(x)))


def ensemble(votes: Sequence[Tensor], known: Sequence[Sequence[int] | None]) -> Tensor:
    """Return the mean of logits (N, C): for each class, over the teachers that know it, each with mean 0 per row."""
    total, weight = torch.zeros_like(votes[0]), torch.zeros(votes[0].shape[1])
    for vote, classes in zip(votes, known, strict=True):
        mask = torch.zeros(vote.shape[1], dtype=torch.bool)
        mask[list(range(vote.shape[1])) if classes is None else list(classes)] = True
        total += torch.where(mask, vote - vote[:, mask].mean(1, keepdim=True), 0.0)
        weight += mask
    return total / weight


def average(nets: Sequence[nn.Module]) -> nn.Module:
    """Return a net with the mean of the weights and buffers of nets of one architecture."""
    mean = copy.deepcopy(nets[0])
    states = [net.state_dict() for net in nets]
    for name, tensor in mean.state_dict().items():
        tensor.copy_(torch.stack([state[name].double() for state in states]).mean(0))
    return mean


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())
