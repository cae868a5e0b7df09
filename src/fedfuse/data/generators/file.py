"""Generator files: the weights as safetensors, and a header that says how to build the net and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from fedfuse.data.generators.net import Generator
from fedfuse.files import write_whole
from fedfuse.types import FedfuseError

HEADER, KIND = "fedfuse", "generator"
MAKE = "make one with `fedfuse generator train`"


def save_generator(path: Path, net: Generator, *, source: str, seed: int) -> None:
    """Write the generator; `source` names the images that it was trained on."""
    header = {
        "kind": KIND,
        "latent": net.latent,
        "shape": list(net.shape),
        "width": net.width,
        "source": source,
        "seed": seed,
    }
    tensors = {name: t.contiguous() for name, t in net.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, safetensors.torch.save(tensors, metadata={HEADER: json.dumps(header)}))


def load_generator(path: str | Path) -> Generator:
    """Load the generator of a file, in eval mode. No code from the file is run."""
    if not Path(path).is_file():
        raise FedfuseError(f"{path}: no such file (the working directory is {Path.cwd()}): {MAKE}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(HEADER, "{}"))
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise FedfuseError(f"{path}: not a safetensors file ({error}): {MAKE}") from error
    if not isinstance(header, dict) or header.get("kind") != KIND:
        content = f"a model ({header['arch']})" if isinstance(header, dict) and "arch" in header else "something else"
        raise FedfuseError(f"{path}: holds {content}, not a generator: {MAKE}")
    try:
        channels, height, width = header["shape"]
        with torch.device("meta"):  # draw no weights: the file's are assigned next
            net = Generator(header["latent"], (channels, height, width), header["width"])
        net.load_state_dict(tensors, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FedfuseError(f"{path}: its weights do not match its header ({error}): {MAKE}") from error
    return net.eval().requires_grad_(False)
