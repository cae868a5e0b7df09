"""Devices by name, and nets on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedfuse.types import FedfuseError

AUTO = "auto"
SHARE_FOR_DATA = 0.25  # of the free memory
UNKNOWN_ROOM = 256 * 2**20  # bytes for data on a device that does not say how much is free
MEMORY_OF_WORKER = 2 * 2**30  # bytes: CUDA takes some hundred megabytes in each process, before any net
CUBLAS = ":4096:8"  # the workspace with which cuBLAS is deterministic


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


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of the device's memory; None if it does not say."""
    try:
        return int(torch.accelerator.get_memory_info(device)[0])
    except (RuntimeError, NotImplementedError, AssertionError, AttributeError):
        return None


def room(device: torch.device) -> int:
    """Return how many bytes of the device data may take: the rest is for nets, their activations and gradients."""
    free = free_memory(device)
    return UNKNOWN_ROOM if free is None else int(SHARE_FOR_DATA * free)


def workers_that_fit(device: torch.device) -> int | None:
    """Return how many worker processes the device's memory allows, at least one per device; None on the CPU."""
    if device.type == "cpu":
        return None
    count = torch.accelerator.device_count() if device.index is None else 1
    each = [torch.device(device.type, number) for number in range(count)] if device.index is None else [device]
    return sum(max(1, (free_memory(one) or 0) // MEMORY_OF_WORKER) for one in each) or 1


def set_arithmetic(device: torch.device, precision: str, deterministic: bool) -> None:
    """From now on, compute products of float32 in TF32 if `precision` is "tf32", where the device has it.

    With `deterministic`, an accelerator uses deterministic algorithms, and warns of an operation that has none.
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if device.type != "cpu" and deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS)  # read by CUDA at its first product
        torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would load PyTorch's compiler


@contextmanager
def arithmetic(device: torch.device, precision: str, deterministic: bool) -> Iterator[None]:
    """As `set_arithmetic`, inside the block."""
    matmul = torch.get_float32_matmul_precision()
    algorithms = torch.get_deterministic_debug_mode()
    set_arithmetic(device, precision, deterministic)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.set_deterministic_debug_mode(algorithms)


def out_of_memory(error: torch.OutOfMemoryError, remedy: str) -> FedfuseError:
    """Return the error of a device that ran out of memory, with the remedy."""
    reason = str(error).partition("\n")[0]
    return FedfuseError(f"the device ran out of memory ({reason}): {remedy}")


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
