"""Devices by name, and nets on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedfuse.types import FedfuseError

AUTO = "auto"


def resolve(name: str | torch.device) -> torch.device:
    """Return the device of this name; "auto" is the accelerator that there is, else the CPU."""
    if name == AUTO:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if accelerator is None else accelerator
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # meta tensors have no values
    except Exception as error:  # each backend has its own way to say that it is not there
        reason = str(error).partition("\n")[0]
        raise FedfuseError(
            f"device {str(name)!r} cannot be used ({reason}): choose one of {', '.join(available())}"
        ) from error
    return device


def available() -> list[str]:
    """Return the devices of this machine."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return [AUTO, "cpu"]
    return [AUTO, "cpu", *(f"{accelerator.type}:{number}" for number in range(torch.accelerator.device_count()))]


def spread(device: torch.device, number: int) -> torch.device:
    """Return the device of worker `number`: where there are several of a kind, and none was named, they take turns."""
    if device.type == "cpu" or device.index is not None:
        return device
    count = torch.accelerator.device_count()
    return torch.device(device.type, number % count) if count > 1 else device


def set_matmul(precision: str) -> None:
    """Compute products of float32 in TF32 from now on, where the device has it, if `precision` is "tf32"."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


@contextmanager
def matmul_in(precision: str) -> Iterator[None]:
    """As `set_matmul`, inside the block."""
    before = torch.get_float32_matmul_precision()
    set_matmul(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def on_device(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Move the net to this device, and back afterwards."""
    first = next(net.parameters(), None)
    if first is None or first.device == device:
        yield
        return
    home = first.device
    net.to(device)
    try:
        yield
    finally:
        net.to(home)
