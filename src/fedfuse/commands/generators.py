"""`generator train` and `generator sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfuse.commands import defaults
from fedfuse.commands.options import DataDir, check_writable, dotted_settings, importing, look_in, out, out_path

app = typer.Typer(
    no_args_is_help=True, help="Train a generator of unlabeled images for the server's pool, and draw samples from it."
)


@app.command(epilog="Example: `fedfuse generator train digits --out gen.safetensors --picture samples.png`")
def train(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A data source of images; see `fedfuse list`.")],
    out_file: Annotated[
        Path, typer.Option("--out", parser=out_path, metavar="PATH", help="File for the generator: .safetensors.")
    ],
    steps: Annotated[
        int, typer.Option(min=1, help="Training steps in each of the two stages.")
    ] = defaults.GENERATOR_STEPS,
    latent: Annotated[int, typer.Option(min=1, help="Size of the latent vectors.")] = defaults.LATENT,
    width: Annotated[
        int, typer.Option(min=1, help="Base number of channels; use more for richer images.")
    ] = defaults.WIDTH,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = defaults.GENERATOR_SEED,
    picture: Annotated[Path | None, typer.Option(help="Also draw samples to this file: .png.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the data source. Repeatable.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Train a generator on public images. An experiment with `data.pool.kind = "generator"` draws its pool from it."""
    look_in(data_dir)
    with importing():
        from fedfuse.data.generators import save_generator
        from fedfuse.data.generators.progress import Steps
        from fedfuse.data.generators.sheet import check_picture
        from fedfuse.data.generators.training import Trainer, image_shape
        from fedfuse.data.sources import load as load_source

    trainer = Trainer(latent=latent, width=width, steps=steps, seed=seed)
    check_writable(out_file, "gen.safetensors")
    images = load_source(source, arguments=dotted_settings(set_)).train
    if picture is not None:
        check_picture(picture, image_shape(images)[0])
    with Steps(out) as watch:
        net = trainer(images, watch).net
    save_generator(out_file, net, source=source, seed=seed)
    out.print(f"generator  {out_file}  {len(images):,} images of {source}, latent {latent}", highlight=False)
    if picture is not None:
        sample(str(out_file), picture, seed, None)
    use = f"--set data.pool.kind=generator --set data.pool.generator={out_file}"
    out.print(f"use it     fedfuse run EXPERIMENT -a feddf {use}", highlight=False, soft_wrap=True)


@app.command(epilog="Example: `fedfuse generator sample gen.safetensors --out samples.png`")
def sample(
    generator: Annotated[str, typer.Argument(metavar="FILE", help="A generator's file, or package.module:factory.")],
    out_file: Annotated[Path, typer.Option("--out", parser=out_path, metavar="PATH", help="Picture to write: .png.")],
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    latent: Annotated[
        int | None, typer.Option(min=1, help="Size of the latent vectors, if the factory's module does not state it.")
    ] = None,
) -> None:
    """Draw samples from a generator into one picture."""
    with importing():
        from fedfuse import rng
        from fedfuse.data.generators.sampling import frozen, generated
        from fedfuse.data.generators.sheet import SAMPLES, draw_sheet

    images = generated(frozen(generator, latent), SAMPLES, rng.generator(seed, "sheet"), images=True)
    draw_sheet(images, out_file)
    out.print(f"picture    {out_file}  {SAMPLES} samples", highlight=False)
