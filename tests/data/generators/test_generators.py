"""Pools from a frozen generator: the file, the draws, the trainer and its commands."""

import hashlib
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context
from fedfuse.data.generators import Generator, load_generator, save_generator
from fedfuse.data.generators.net import Flow
from fedfuse.data.generators.sampling import Frozen, frozen, generated
from fedfuse.data.generators.training import Trainer
from fedfuse.data.pool import POOLS
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine

Shape = tuple[int, int, int]


@pytest.fixture(scope="module")
def digits() -> Source:
    return load("digits")


def untrained(shape: Shape = (1, 8, 8), latent: int = 3) -> Generator:
    with rng.ambient(rng.generator(0, "test")):
        return Generator(latent, shape, width=4).eval()


def still_flow(hidden: int) -> Flow:
    with rng.ambient(rng.generator(0, "test")):
        return Flow(2, hidden)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gen.safetensors"
    save_generator(path, untrained(), source="digits", seed=7)
    return path


def pool(train: Any, location: Location, generator: str | Path, seed: int = 0, **settings: Any) -> Tensor:
    """The pool's images."""
    made = POOLS["generator"](train, rng.generator(seed, "pool"), location, generator=str(generator), **settings)
    assert made.rest is None
    assert not made.pool.y.any()
    x: Tensor = made.pool.x
    return x


# Modules of a user's own, by name.

HERE = "tests.data.generators.test_generators"


class Ramp(nn.Module):
    """Every pixel is the latent itself, so that samples can be done by hand."""

    latent = 1
    shape: tuple[int, ...] = (1, 8, 8)

    def forward(self, z: Tensor) -> Tensor:
        return z.view(-1, *(1,) * len(self.shape)).expand(-1, *self.shape)


class Silent(Ramp):
    latent = None  # type: ignore[assignment]


class Flat(Ramp):
    shape = (64,)


class Wide(Ramp):
    """Of the range of a hyperbolic tangent."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z).sign()


class Broken(Ramp):
    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z) / 0


class Noisy(nn.Module):
    """Draws of its own besides its latents', and has what differs between train and eval mode."""

    latent = 2

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 64), nn.Dropout(0.5), nn.Sigmoid())

    def forward(self, z: Tensor) -> Tensor:
        return self.layer(z).view(-1, 1, 8, 8) * torch.rand(len(z), 1, 1, 1)


def number() -> int:
    return 3


# The net.


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 9), (1, 28, 28), (3, 32, 32), (2, 12, 17), (1, 1, 1)])
def test_any_shape(shape: Shape) -> None:
    x = untrained(shape)(torch.randn(2, 3, generator=rng.generator(0, "test")))
    assert x.shape == (2, *shape)
    assert x.min() >= 0
    assert x.max() <= 1


def test_flow_moves_by_its_velocity() -> None:
    flow = still_flow(4)
    z = torch.tensor([[1.0, -2.0]])
    assert torch.equal(flow(z), z)  # at rest until it has learned
    flow.last.bias.data.copy_(torch.tensor([0.5, 3.0]))
    torch.testing.assert_close(flow(z), torch.tensor([[1.5, 1.0]]))  # a constant velocity, for a time of 1


# The file.


def test_file_round_trip(file: Path) -> None:
    z = torch.randn(5, 3, generator=rng.generator(0, "z"))
    read = load_generator(file)
    assert torch.equal(read(z), untrained()(z))
    assert (read.latent, read.shape, read.width, read.training) == (3, (1, 8, 8), 4, False)
    with safetensors.safe_open(file, framework="pt") as opened:
        header = opened.metadata()["fedfuse"]
    for fact in ('"kind": "generator"', '"latent": 3', '"shape": [1, 8, 8]', '"source": "digits"', '"seed": 7'):
        assert fact in header


def _garbage(path: Path) -> None:
    path.write_bytes(b"not at all")


def _foreign(path: Path) -> None:
    safetensors.torch.save_file({"w": torch.zeros(2)}, path)


def _model(path: Path) -> None:
    safetensors.torch.save_file({"w": torch.zeros(2)}, path, metadata={"fedfuse": '{"arch": "mlp:8"}'})


def _cut(path: Path) -> None:
    header = '{"kind": "generator", "latent": 3, "shape": [1, 8, 8], "width": 4}'
    safetensors.torch.save_file({"w": torch.zeros(2)}, path, metadata={"fedfuse": header})


def _pickled(path: Path) -> None:
    torch.save({"w": torch.zeros(2)}, path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, r"no such file"),
        (_garbage, r"not a safetensors file"),
        (_pickled, r"not a safetensors file"),
        (_foreign, r"holds something else, not a generator"),
        (_model, r"holds a model \(mlp:8\), not a generator"),
        (_cut, r"do not match its header"),
    ],
)
def test_wrong_files(tmp_path: Path, write: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "other.safetensors"
    write(path)
    with pytest.raises(
        FedfuseError, match=rf"other\.safetensors: .*{message}[\s\S]*make one with `fedfuse generator train`"
    ):
        frozen(str(path))


# The draws.


def test_samples_by_hand() -> None:
    drawn = generated(Frozen("ramp", Ramp(), 1), 4, rng.generator(0, "z"), images=False)
    # `ambient` takes one number first.
    after = rng.generator(0, "z")
    torch.randint(2**62, (), generator=after)
    assert torch.equal(drawn[:, 0, 0, 0], torch.randn(4, 1, generator=after).squeeze(1))
    assert drawn.dtype == torch.float32

    class Half(Ramp):
        def forward(self, z: Tensor) -> Tensor:
            return torch.full((len(z), 1, 8, 8), 0.5).index_fill(2, torch.tensor([0]), 1.04)

    images = generated(Frozen("half", Half(), 1), 2, rng.generator(0, "z"), images=True)
    assert images[0, 0, 1, 0] == 128  # 127.5, rounded to even
    assert images[0, 0, 0, 0] == 255  # a little beyond is clamped


def test_draws_are_keyed_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (
        generated(frozen(f"{HERE}:Noisy"), 300, rng.generator(seed, "pool"), images=True) for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("made", "source", "settings"), [
    ((1, 8, 8), "digits", {}),
    ((3, 12, 12), "digits", {}),
    ((1, 10, 10), "synthetic", {"shape": [3, 16, 16], "examples": 20, "classes": 2}),
])  # fmt: skip
def test_pool_fits_the_training_data(
    tmp_path: Path, location: Location, made: Shape, source: str, settings: dict[str, object]
) -> None:
    train = load(source, arguments=settings).train
    save_generator(tmp_path / "g", untrained(made), source="", seed=0)
    got = POOLS["generator"](train, rng.generator(0, "pool"), location, generator=str(tmp_path / "g"), size=300).pool
    assert got.x.dtype == torch.uint8
    assert got.x.shape == (300, *train.shape)
    assert got.classes == train.classes
    assert got.batch(torch.arange(300)).mean().item() == pytest.approx(0, abs=1e-3)  # by statistics of its own


def test_features(location: Location) -> None:
    train = load("swiss-roll", arguments={"examples": 30}).train
    assert pool(train, location, f"{HERE}:Point", size=5).shape == (5, *train.shape)
    with pytest.raises(FedfuseError, match=rf"pool {HERE}:Flat: .*\(2,\): .* choose a pool"):
        pool(train, location, f"{HERE}:Flat", size=5)


class Point(Ramp):
    shape = (2,)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            f"{HERE}:Silent",
            {},
            r"latent = None\): .* `latent: int`, or set data\.pool\.latent",
        ),
        (
            f"{HERE}:Flat",
            {},
            r"samples of shape \(64,\), but the training data is images",
        ),
        (f"{HERE}:Wide", {}, r"values from -1 to 1: .* return \(x \+ 1\) / 2"),
        (f"{HERE}:Broken", {}, r"values that are not finite"),
        (f"{HERE}:number", {}, r"number returned a int: it must return a torch\.nn\.Module"),
        (f"{HERE}:untrained", {"latent": 9}, r"fails on latents of shape \(10, 9\)"),
        ("tests.data.small_data:labelled", {}, r"labelled\(\) raised TypeError"),
        (f"{HERE}:nothing", {}, r"has no 'nothing'"),
        (f"{HERE}:Ramp", {"size": 0}, r"size = 0"),
    ],
)
def test_wrong_modules(digits: Source, location: Location, name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        pool(digits.train, location, name, **{"size": 10, **settings})


def test_latent_of_a_file_is_its_own(file: Path) -> None:
    assert frozen(str(file), latent=3).latent == 3
    with pytest.raises(FedfuseError, match=r"has latents of 3, not of 4: leave latent out"):
        frozen(str(file), latent=4)


def test_latent_may_be_set() -> None:
    assert frozen(f"{HERE}:Silent", latent=1).latent == 1


# Once per run, or fresh each round.


def experiment(file: Path, **pool: Any) -> Experiment:
    data = {"source": "digits", "pool": {"kind": "generator", "generator": str(file), "size": 20, **pool}}
    return Experiment(data=data, models="mlp:8", local={"epochs": 1, "batch_size": 32, "lr": 0.1})


def context(made: Experiment) -> Context:
    return set_up(made, load_federation(made)).ctx


def drawn(ctx: Context, round: int) -> Tensor:
    pool = ctx.at(round).pool
    assert pool is not None
    return pool.x


def test_once_per_run(file: Path) -> None:
    ctx = context(experiment(file))
    assert ctx.pool is ctx.data.pool
    assert ctx.at(1).pool is ctx.at(2).pool
    again, other = context(experiment(file)), context(experiment(file).with_settings({"run.seed": 1}))
    assert torch.equal(drawn(ctx, 1), drawn(again, 1))
    assert not torch.equal(drawn(ctx, 1), drawn(other, 1))


def test_no_pool() -> None:
    made = Experiment(data={"source": "digits"}, models="mlp:8", local={"epochs": 1, "batch_size": 32, "lr": 0.1})
    assert context(made).pool is None


def test_fresh_each_round(file: Path) -> None:
    made = experiment(file, fresh=True)
    ctx, resumed = context(made), context(made)
    first = drawn(ctx, 1)
    assert ctx.at(1).pool is ctx.at(1).pool  # all that ask in a round get one draw
    assert not torch.equal(first, drawn(ctx, 2))
    assert torch.equal(drawn(resumed, 2), drawn(ctx, 2))  # whatever was drawn before it
    assert torch.equal(first, drawn(ctx, 1))


def test_fresh_draws_are_the_same_in_another_process(file: Path, tmp_path: Path) -> None:
    made = experiment(file, fresh=True)
    ctx = context(made)
    ctx.data.save(tmp_path / "data")
    (tmp_path / "experiment.toml").write_text(made.toml())
    # As a worker opens its experiment, but with as many threads as it likes.
    script = (
        "import sys, hashlib, torch; from pathlib import Path; from fedfuse.runs.worker import open_;"
        "place = {'cwd': '.', 'path': list(sys.path)};"
        "ctx = open_({'experiment': sys.argv[1], 'folder': sys.argv[2], 'number': 0, **place})[1];"
        "torch.set_num_threads(2);"
        "print(hashlib.sha256(ctx.at(3).pool.x.numpy().tobytes()).hexdigest())"
    )
    there = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "experiment.toml", tmp_path / "data"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == hashlib.sha256(drawn(ctx, 3).numpy().tobytes()).hexdigest()


# The trainer.


def test_training_lowers_both_losses_and_is_deterministic(digits: Source) -> None:
    trainer = Trainer(latent=4, width=8, steps=60, batch_size=128, lr=5e-3)
    seen: list[tuple[str, int]] = []
    trained = trainer(digits.train, lambda stage, step, steps, loss: seen.append((stage, step)))
    for losses, fall in ((trained.pixels, 0.3), (trained.latents, 0.1)):
        assert len(losses) == 60
        assert sum(losses[-15:]) / 15 < sum(losses[:15]) / 15 - fall
    assert seen[0] == ("images", 1)
    assert seen[-1] == ("latents", 60)
    again = trainer(digits.train)
    assert all(torch.equal(a, b) for a, b in zip(trained.net.parameters(), again.net.parameters(), strict=True))


def test_flow_from_the_normal_to_itself() -> None:
    """At rest it errs by E (a - b)^2 = 2; the best is the integral of 1 / (t^2 + (1 - t)^2) over t, pi / 2."""
    trainer, nothing = Trainer(latent=2, steps=300, batch_size=256, lr=1e-2), torch.zeros(10, 2)
    losses = trainer._train_flow(still_flow(16), nothing, nothing, lambda *_: None)
    assert losses[0] == pytest.approx(2, rel=0.15)
    assert sum(losses[-100:]) / 100 == pytest.approx(math.pi / 2, rel=0.03)


def test_samples_resemble_what_was_learned(digits: Source) -> None:
    trained = Trainer(latent=8, width=8, steps=150, batch_size=64, lr=5e-3)(digits.train)
    drawn = generated(Frozen("trained", trained.net, 8), 500, rng.generator(0, "pool"), images=True)
    real, made = digits.train.x.float() / 255, drawn.float() / 255
    blind = generated(Frozen("untrained", untrained(), 3), 500, rng.generator(0, "pool"), images=True).float() / 255
    # The mean image is learned, and the samples vary about it.
    assert (made.mean(0) - real.mean(0)).abs().mean() < 0.05 < (blind.mean(0) - real.mean(0)).abs().mean()
    assert made.std(0).mean() > 0.5 * real.std(0).mean()


def test_trainer_refuses(digits: Source) -> None:
    with pytest.raises(FedfuseError, match=r"steps=0"):
        Trainer(steps=0)
    with pytest.raises(FedfuseError, match=r"trained on images, but this data is .* choose a source of images"):
        Trainer(steps=1)(load("swiss-roll", arguments={"examples": 30}).train)
    with pytest.raises(FedfuseError, match=r"is nan at step \d+: lower lr"):
        Trainer(steps=30, width=4, latent=2, lr=1e30)(digits.train)


# The commands.


def test_train_then_check(cli: CommandLine, tmp_path: Path) -> None:
    file, picture = tmp_path / "new" / "gen.safetensors", tmp_path / "samples.png"
    result = cli.here("generator", "train", "digits", "--steps", "20", "--out", file, "--picture", picture)
    assert result.code == 0, result.text
    assert "step 20/20" in result.out
    assert "1,437 images of digits" in result.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    use = ("--set", "data.pool.kind=generator", "--set", f"data.pool.generator={file}")
    checked = cli.here("check", "digits", *use, "--set", "data.pool.size=50")
    assert checked.code == 0, checked.text
    assert "50 unlabeled examples" in checked.out
    sheet = cli.here("generator", "sample", file, "--out", tmp_path / "sheet.png")
    assert sheet.code == 0, sheet.text
    assert (tmp_path / "sheet.png").read_bytes() == picture.read_bytes()  # seed 0 in both


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "digit", "--out", "g"), "did you mean digits?"),
        (("train", "swiss-roll", "--out", "g"), "choose a source of images"),
        (("train", "digits", "--out", "."), "is a folder"),
        (("train", "digits", "--out", "g", "--picture", "sheet.gif"), "is a .png"),
        (("train", "digits", "--out", "g", "--set", "colour=red"), "colour"),
        (("sample", "nowhere.safetensors", "--out", "s.png"), "nowhere.safetensors: no such file"),
    ],
)
def test_wrong_commands(
    cli: CommandLine, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got = cli.here("generator", *arguments)
    assert got.code == 2
    assert message in got.err
    assert not list(tmp_path.glob("g*"))  # said before the work


def test_the_place_for_a_generator_is_checked_before_training(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untrained(*arguments: object) -> None:
        raise AssertionError("trained first")

    monkeypatch.setattr(Trainer, "__call__", untrained)
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "gen.safetensors", ""):
        ended = cli.here("generator", "train", "digits", "--out", place)
        assert ended.code == 2
        assert f"--out {place or repr('')}" in ended.err
    monkeypatch.setattr("fedfuse.commands.options.os.access", lambda path, mode: False)
    ended = cli.here("generator", "train", "digits", "--out", tmp_path / "gen.safetensors")
    assert (ended.code, "no permission" in ended.err) == (2, True)
