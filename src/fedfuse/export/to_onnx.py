"""Export a trained model as ONNX, and compare onnxruntime's outputs with PyTorch's."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.compute.batches import forward
from fedfuse.export.hub_folder import choose_model, read_records, refuse_local_net
from fedfuse.files import write_whole
from fedfuse.models.classifier import reads_texts
from fedfuse.models.file import Header, Loaded, imports_code, load_model
from fedfuse.types import FedfuseError

IDS, MASK, X, LOGITS = "input_ids", "attention_mask", "x", "logits"
TOLERANCE = 1e-4  # of the largest logit, or of 1 if that is smaller: float32 sums in another order
TRIALS = ((2, 1.0), (5, 0.6))  # rows, share of the longest length: the second differs from the sizes that are traced


@dataclass(frozen=True)
class OnnxFile:
    """What was written: the model's header, its inputs in words, and the largest difference from PyTorch's logits."""

    header: Header
    inputs: str
    difference: float


def export_onnx(
    run: str | Path, file: str | Path, *, model: str | None = None, trust_code: bool = False, force: bool = False
) -> OnnxFile:
    """Write the run's model to `file` as ONNX. Nothing is written if onnxruntime does not give PyTorch's outputs.

    trust_code: allow importing the module of a net of one's own, which runs its code.
    """
    run, file = Path(run), Path(file)
    if file.is_dir():
        raise FedfuseError(f"--onnx {file} is a folder: name a file, as in {file / 'model.onnx'}")
    if file.exists() and not force:
        raise FedfuseError(f"--onnx {file} exists already: choose another file, or write over it with --force")
    source, header = choose_model(run, read_records(run), model)
    refuse_local_net(header.arch, "--onnx")
    if (own := imports_code(header.arch)) and not trust_code:
        raise FedfuseError(
            f"--onnx: the net is built by {own[0]}, and importing that module runs its code: if you trust it, add "
            "--trust-code"
        )
    loaded = load_model(source, trust_code=trust_code)
    texts = reads_texts(loaded.net) or header.tokenizer is not None
    net = _Texts(loaded.net) if texts else _Normalised(loaded)
    inputs = _in_words(loaded, texts)
    content = _described(_traced(net, _example(loaded, texts, *TRIALS[0]), header.arch), header, inputs)
    difference = max(_difference(content, net, _example(loaded, texts, *trial), header.arch) for trial in TRIALS)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content)
    return OnnxFile(header, inputs, difference)


class _Normalised(nn.Module):
    """The net with the normalisation of its inputs in front."""

    mean: Tensor
    std: Tensor

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        shape = (1, -1) + (1,) * (len(loaded.shape) - 1)
        self.net = loaded.net
        self.register_buffer("mean", torch.tensor(loaded.mean).view(shape))
        self.register_buffer("std", torch.tensor(loaded.std).view(shape))

    def forward(self, x: Tensor) -> Tensor:  # (B, ...) -> (B, C)
        return forward(self.net, (x - self.mean) / self.std)


class _Texts(nn.Module):
    """A net of texts with its inputs by position, as exporters want them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:  # (B, L), (B, L) -> (B, C)
        return forward(self.net, {IDS: input_ids, MASK: attention_mask})


def _in_words(loaded: Loaded, texts: bool) -> str:
    if texts:
        longest, vocabulary = loaded.shape
        return (
            f"{IDS} and {MASK}, int64, (B, L) with L up to {longest}: token ids below {vocabulary}, padded at the "
            "right with mask 0"
        )
    pixels = ": pixels divided by 255, if they are bytes" if len(loaded.shape) == 3 else ""
    size = ", ".join(map(str, loaded.shape))
    return f"{X}, float32, (B, {size}), not normalised{pixels}; the model normalises them itself"


def _example(loaded: Loaded, texts: bool, rows: int, share: float) -> tuple[Tensor, ...]:
    """Return random inputs with `rows` rows; of texts, with some padding."""
    generator = rng.generator(0, "onnx", rows)
    if not texts:
        return (torch.rand(rows, *loaded.shape, generator=generator),)
    longest, vocabulary = loaded.shape
    length = max(1, math.ceil(share * longest))
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[-1, math.ceil(length / 2) :] = 0
    return torch.randint(vocabulary, (rows, length), generator=generator), mask


def _traced(net: nn.Module, example: tuple[Tensor, ...], arch: str) -> bytes:
    names = [IDS, MASK] if len(example) == 2 else [X]
    axes = {name: {0: "B", **({1: "L"} if len(example) == 2 else {})} for name in names}
    try:
        import onnx  # noqa: F401  (only to say here that it is missing)

        with warnings.catch_warnings(), torch.no_grad(), TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")  # about the exporter's own age, and about shapes that are checked below
            # The exporter by tracing: a ResNet-8 takes it 0.1 s of CPU time, and the newer one 2.2.
            torch.onnx.export(
                net.eval(),
                example,
                f"{folder}/model.onnx",
                input_names=names,
                output_names=[LOGITS],
                dynamic_axes={**axes, LOGITS: {0: "B"}},
                dynamo=False,
            )
            return Path(folder, "model.onnx").read_bytes()
    except ImportError as error:
        raise _missing(error) from error
    except Exception as error:  # the exporter has errors of many kinds
        raise FedfuseError(
            f"--onnx: PyTorch cannot express {arch} in ONNX ({_first_line(error)}): use --hub-folder instead"
        ) from error


def _described(content: bytes, header: Header, inputs: str) -> bytes:
    """Add the labels and the meaning of the inputs to the file's metadata."""
    import onnx

    model = onnx.load_from_string(content)
    facts = {"architecture": header.arch, "labels": json.dumps(header.labels), "inputs": inputs}
    if header.tokenizer:
        facts["tokenizer_sha256"] = header.tokenizer
    onnx.helper.set_model_props(model, facts)
    written: bytes = model.SerializeToString()
    return written


def _difference(content: bytes, net: nn.Module, example: tuple[Tensor, ...], arch: str) -> float:
    """Return the largest difference of onnxruntime's logits from PyTorch's. Raise an error if it is too large."""
    with torch.no_grad():
        expected = net(*example)
    try:
        logits = torch.from_numpy(_run(content, example))
    except ImportError as error:
        raise _missing(error) from error
    except Exception as error:  # onnxruntime's errors have no common class
        raise FedfuseError(
            f"--onnx: onnxruntime cannot run {arch} on {len(expected)} rows ({_first_line(error)}): use --hub-folder "
            "instead"
        ) from error
    difference = float((logits - expected).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise FedfuseError(
            f"--onnx: onnxruntime's logits of {arch} differ from PyTorch's by {difference:.2g}: nothing was written; "
            "use --hub-folder instead"
        )
    return difference


def _run(content: bytes, example: tuple[Tensor, ...]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, too
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    known = [each.name for each in session.get_inputs()]  # a net that ignores the mask has no such input
    names = [IDS, MASK] if len(example) == 2 else [X]
    feed = {name: tensor.numpy() for name, tensor in zip(names, example, strict=True) if name in known}
    return session.run([LOGITS], feed)[0]


def _missing(error: ImportError) -> FedfuseError:
    return FedfuseError(f"--onnx needs {error.name}, which is not installed: pip install 'fedfuse[onnx]'")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
