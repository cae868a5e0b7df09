"""A pretend accelerator, for machines without one: `from fedfuse.testing import pretend`, then `device="pretend"`.

Its tensors wrap CPU tensors that only this module sees. An operation that mixes them with CPU tensors of one or more
dimensions fails, as on a GPU; only copies go across, and `transfers` counts them. Importing the module registers the
device with PyTorch for the whole process, so use it in a process of its own. It follows torch 2.13, whose interface
for devices in Python is experimental: it has no streams, and layers draw from the CPU's generator; `generator` only
shows that the device's own is seeded and restored.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretend"
DEVICE = f"{NAME}:0"
transfers: Counter[str] = Counter()  # "to" and "from" the device: tensors of one or more dimensions
generator = torch.Generator()
seeds: list[int] = []  # with which the generator was seeded


class _Backend(_DummyBackendModule):
    """`torch.pretend`."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def manual_seed(self, seed: int) -> None:
        seeds.append(seed)
        generator.manual_seed(seed)

    def get_rng_state(self, device: object = None) -> Tensor:
        return generator.get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        generator.set_state(state)


_setup_privateuseone_for_python_backend(NAME, _Backend())  # type: ignore[no-untyped-call, unused-ignore]
_ACROSS = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class _Far(Tensor):
    """A tensor on the device. `raw` is its content."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> _Far:
        tensor: _Far = Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype,
            layout=raw.layout, device=torch.device(NAME, 0), requires_grad=False,
        )  # fmt: skip
        return tensor

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


def _run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    far = [t for t in tensors if isinstance(t, _Far)]
    if far and operation not in _ACROSS and any(t.dim() > 0 for t in tensors if not isinstance(t, _Far)):
        raise RuntimeError(f"{operation}: expected all tensors on one device, found {DEVICE} and cpu")
    device = kwargs.get("device")
    is_far = bool(far) if device is None else torch.device(device).type == NAME
    _count(operation, args, is_far)
    kwargs = {k: torch.device("cpu") if k == "device" and v is not None else v for k, v in kwargs.items()}
    raw = tree_map(lambda t: t.raw if isinstance(t, _Far) else t, (args, kwargs))
    result = operation(*raw[0], **raw[1])
    if operation is torch.ops.aten.copy_.default:
        return args[0]
    by_raw = {id(t.raw): t for t in far}  # an operation in place returns what it was given

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return by_raw[id(value)] if id(value) in by_raw else _Far(value) if is_far else value

    return tree_map(wrap, result)


def _count(operation: Any, args: Any, is_far: bool) -> None:
    if operation not in _ACROSS:
        return
    target = isinstance(args[0], _Far) if operation is torch.ops.aten.copy_.default else is_far
    source = args[1] if operation is torch.ops.aten.copy_.default else args[0]
    if isinstance(source, _Far) != target and source.dim() > 0:
        transfers["to" if target else "from"] += 1


_library = torch.library.Library("_", "IMPL", "PrivateUse1")  # type: ignore[no-untyped-call]
_library.fallback(lambda operation, *args, **kwargs: _run(operation, args, kwargs))  # type: ignore[no-untyped-call]


_AUTOCAST: Any = torch._C._dispatch_key_parse("AutocastPrivateUse1")


def _autocast(operation: Any) -> Any:
    """Return the operation with its float arguments in the precision of autocast."""

    def cast(value: Any) -> Any:
        far = isinstance(value, Tensor) and value.device.type == NAME and value.is_floating_point()
        return value.to(torch.get_autocast_dtype(NAME)) if far else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
            return operation(*tree_map(cast, args), **tree_map(cast, kwargs))

    return run


_autocast_fallback = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")  # type: ignore[no-untyped-call]
_autocast_fallback.fallback(torch.library.fallthrough_kernel)  # type: ignore[no-untyped-call]
_autocast_rules = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")  # type: ignore[no-untyped-call]
for _name, _operation in (("linear", torch.ops.aten.linear.default), ("conv2d", torch.ops.aten.conv2d.default)):
    _autocast_rules.impl(_name, _autocast(_operation))  # type: ignore[no-untyped-call]
