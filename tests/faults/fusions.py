"""Damage to what `fedfuse fuse` reads: the cache of teachers' logits, folders of students, folders of Hugging Face."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from fedfuse import rng
from fedfuse.data.sources.location import Location
from fedfuse.fusion import AdamCosine
from fedfuse.in_hand.folder import FusedFolder, fuse_to_folder
from fedfuse.models import build
from fedfuse.models.file import MODEL, Header, write_model
from fedfuse.types import Snapshot
from tests.faults.mutations import MUTATIONS
from tests.faults.tally import Tally, WrongError

FEATURES, PIXELS = "tests.faults.fusions:features", "tests.faults.fusions:pixels"
QUICK = AdamCosine(steps=2, batch_size=16)


def features() -> Any:
    x = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
    return (x, np.arange(48) % 3), (x[:9], np.arange(9) % 3)


def pixels() -> Any:
    x = np.random.default_rng(0).integers(0, 256, (32, 8, 8), dtype=np.uint8)
    return (x, np.arange(32) % 3), (x[:9], np.arange(9) % 3)


def _fused(teachers: list[Path], student: str, pool: str, out: Path) -> FusedFolder:
    shutil.rmtree(out, ignore_errors=True)
    names = [str(teacher) for teacher in teachers]
    return fuse_to_folder(names, student, pool, out, distiller=QUICK, device="cpu", report=False, progress=False)


def _teacher(file: Path, seed: int) -> Path:
    with rng.ambient(rng.generator(seed, "teacher")):
        snapshot = Snapshot.of("mlp:4", build("mlp:4", classes=3, shape=(4,)))
    header = Header(arch="mlp:4", classes=3, shape=(4,), mean=(0.0,) * 4, std=(1.0,) * 4, labels=("0", "1", "2"))
    write_model(file, header, {**snapshot.params, **snapshot.buffers})
    return file


def _vit(folder: Path) -> Path:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4,
        num_channels=1, num_labels=3,
    )  # fmt: skip
    with rng.ambient(rng.generator(0, "vit")):
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    processor = {"image_mean": [0.5], "image_std": [0.25], "size": {"height": 8, "width": 8}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / MODEL)


def _compare(out: Path, expected: dict[str, torch.Tensor]) -> None:
    weights = _weights(out)
    if weights.keys() != expected.keys() or any(not t.equal(expected[name]) for name, t in weights.items()):
        raise WrongError("another student")


def logit_caches(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to the kept logits of a teacher, or another teacher's in their place: the student is the same."""
    tally, draw = Tally("mutations of kept logits"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        teachers = [_teacher(folder / f"{number}.safetensors", number) for number in range(2)]
        kept = Location.at().cache / "teachers"
        shutil.rmtree(kept, ignore_errors=True)
        _fused(teachers, "mlp:4", FEATURES, folder / "first")
        original, expected = folder / "kept", _weights(folder / "first")
        shutil.copytree(kept, original)
        files = sorted(file.relative_to(original) for file in original.rglob("*") if file.is_file())
        for number in range(40 * amount):
            shutil.rmtree(kept)
            shutil.copytree(original, kept)
            file, what = draw.choice(files), draw.choice([*MUTATIONS, "another teacher's"])
            if what in MUTATIONS:
                (kept / file).write_bytes(MUTATIONS[what]((original / file).read_bytes(), draw))
            else:
                entry, other = draw.sample(sorted(original.iterdir()), 2)
                shutil.rmtree(kept / entry.name)
                shutil.copytree(other, kept / entry.name)
            with tally.trying(f"seed {seed}, {number}: {file}: {what}"):
                _fused(teachers, "mlp:4", FEATURES, folder / "out")
                _compare(folder / "out", expected)
            progress()
    return tally


def students(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to a file of a student's folder, which is then a teacher: it is told, or the result is the same."""
    tally, draw = Tally("mutations of a fused student"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = _fused([_teacher(folder / "a.safetensors", 0)], "mlp:4", FEATURES, folder / "small").folder
        vit = _vit(folder / "vit")
        large = _fused([vit], f"hf:{vit}", PIXELS, folder / "large").folder
        for fused, student, pool in ((small, "mlp:4", FEATURES), (large, "mlp:4", PIXELS)):
            _fused([fused], student, pool, folder / "expected")
            expected = _weights(folder / "expected")
            for number in range(15 * amount):
                file, what = draw.choice(sorted(fused.iterdir())), draw.choice([*MUTATIONS, "missing"])
                content = file.read_bytes()
                if what in MUTATIONS:
                    file.write_bytes(MUTATIONS[what](content, draw))
                else:
                    file.unlink()
                with tally.trying(f"seed {seed}, {number}: {fused.name}/{file.name}: {what}"):
                    _fused([fused], student, pool, folder / "out")
                    _compare(folder / "out", expected)
                file.write_bytes(content)
                progress()
    return tally


def hugging_face_folders(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Damage to a file of a folder that others wrote, as a teacher: such a folder has no checksums.

    It is told, or the student is finite: a changed weight is a weight.
    """
    tally, draw = Tally("mutations of a Hugging Face folder"), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vit = _vit(folder / "vit")
        for number in range(30 * amount):
            file, what = draw.choice(sorted(vit.iterdir())), draw.choice(list(MUTATIONS))
            content = file.read_bytes()
            file.write_bytes(MUTATIONS[what](content, draw))
            with tally.trying(f"seed {seed}, {number}: {file.name}: {what}"):
                _fused([vit], "mlp:4", PIXELS, folder / "out")
                if not all(bool(t.isfinite().all()) for t in _weights(folder / "out").values()):
                    raise WrongError("a student that is not finite")
            file.write_bytes(content)
            progress()
    return tally
