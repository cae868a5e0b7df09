"""`fuse`: trained models into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfuse.commands import defaults
from fedfuse.commands.options import DataDir, WithReport, importing, look_in, out, out_path
from fedfuse.commands.reporting import say_where
from fedfuse.errors import FedfuseError

if TYPE_CHECKING:
    from rich.table import Table

    from fedfuse.in_hand.folder import FusedFolder

app = typer.Typer()

LABELED = "its test split is used, or a fifth of a source without one; of a parquet file, all rows."


@app.command(
    epilog="Example: `fedfuse fuse runs/a/models/mlp_64.safetensors hf:models/vit --student resnet8 --pool cifar10 "
    "--out models/fused`"
)
def fuse(
    teachers: Annotated[
        list[str],
        typer.Argument(
            metavar="TEACHER...",
            help="Model files and exported folders of fedfuse, folders of Hugging Face classifiers or `hf:ID`, "
            "or `package.module:factory`.",
        ),
    ],
    student: Annotated[
        str, typer.Option(help="Architecture (see `fedfuse list`), `hf:ID` or `hf:FOLDER`, or a model file of fedfuse.")
    ],
    pool: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Unlabeled data: a data source, of which the training split is used; or a parquet file, of which all "
            "rows are used. For texts a parquet file with a column `text` or `sentence`, or `FILE::COLUMN`.",
        ),
    ],
    out_dir: Annotated[
        Path, typer.Option("--out", parser=out_path, metavar="FOLDER", help="New folder for the student.")
    ],
    validation: Annotated[
        str | None, typer.Option(metavar="SOURCE", help=f"Labeled data, to stop early: {LABELED}")
    ] = None,
    test: Annotated[str | None, typer.Option(metavar="SOURCE", help=f"Labeled data, to judge: {LABELED}")] = None,
    steps: Annotated[int, typer.Option(help="Most steps of the distillation.")] = defaults.STEPS,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.")] = defaults.LR,
    batch_size: Annotated[int, typer.Option(help="Examples of a step.")] = defaults.BATCH_SIZE,
    target: Annotated[str, typer.Option(help=f"What the student learns: {', '.join(defaults.TARGETS)}.")] = "logits",
    device: Annotated[str, typer.Option(help="Where models run: `cpu`, `cuda`, `mps`.")] = defaults.DEVICE,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that torch computes with; more may be faster for large nets.")
    ] = 1,
    report: WithReport = True,
    data_dir: DataDir = None,
) -> None:
    """Distil trained models, of any architectures, into one student on unlabeled data.

    Teachers' logits are cached: repeat the command after a crash, or with another student, and they are not run again.
    """
    look_in(data_dir)
    with importing():
        import torch

        from fedfuse import signature
        from fedfuse.compute import devices
        from fedfuse.config.parts import PARTS
        from fedfuse.fusion import AdamCosine, Target
        from fedfuse.in_hand.folder import fuse_to_folder

    targets = PARTS[Target]
    if target not in targets:
        hint = signature.did_you_mean(target, targets)
        raise FedfuseError(f"--target {target}: no target is called so{hint} Known: {', '.join(targets)}")
    try:
        result = fuse_to_folder(
            teachers, student, pool, out_dir, validation=validation, test=test, target=targets[target](),
            distiller=AdamCosine(lr=lr, steps=steps, batch_size=batch_size), device=device, seed=seed, threads=threads,
            report=report,
        )  # fmt: skip
    except torch.OutOfMemoryError as error:
        raise devices.out_of_memory(error, "lower --batch-size, or choose --device cpu") from error
    if (place := devices.resolve(device)).type != "cpu":
        out.print(f"on {place}", highlight=False)
    _print(result)


def _print(result: FusedFolder) -> None:
    if result.reused:
        out.print(f"not run again, from the cache: {', '.join(result.reused)}", highlight=False, soft_wrap=True)
    out.print(_table(result))
    out.print(f"student   {result.folder}", highlight=False, soft_wrap=True)
    if result.report is not None:
        say_where(result.report)


def _table(result: FusedFolder) -> Table:
    with importing():
        from fedfuse.terminal.tables import plain_table

    columns = {
        "validation %": [row.validation for row in result.rows],
        "test %": [row.test for row in result.rows],
        "agreement %": [row.agreement for row in result.rows],
    }
    known = {name: shares for name, shares in columns.items() if any(share is not None for share in shares)}
    table = plain_table(f"{result.fused.steps} steps, {result.fused.reason}", "model", *known)
    for number, row in enumerate(result.rows):
        cells = (shares[number] for shares in known.values())
        table.add_row(row.name, *("" if share is None else f"{100 * share:.2f}" for share in cells))
    return table
