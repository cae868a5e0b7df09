"""`flower init`, `add`, `renew`, `start`, `check`, `register`, `run`, `status`: a federation on several machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfuse.commands.options import DataDir, Set, dotted_settings, importing, look_in, out, out_path
from fedfuse.errors import FedfuseError

if TYPE_CHECKING:
    from fedfuse.flower.machines.machine import Place

Folder = Annotated[Path, typer.Argument(help="This machine's folder, as `fedfuse flower init` made it.")]
HERE = Path()


@contextmanager
def _with_flower() -> Iterator[None]:
    try:
        with importing():
            yield
    except ImportError as error:
        raise FedfuseError(f"`fedfuse flower` needs Flower ({error}): pip install 'fedfuse[flower]'") from error


def init(
    server: Annotated[str, typer.Option(help="Host name or address under which nodes reach the server.")],
    node: Annotated[list[str], typer.Option(help="Name of a node, as in hospital-a. Repeatable.")],
    experiment: Annotated[
        str | None,
        typer.Option(
            "--experiment", "-e", help="Name of a built-in experiment, or a TOML file. Default: a trial on digits."
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", parser=out_path, metavar="PATH", help="Folder to make. Default: federation.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that nodes connect to.")] = 8443,
    share: Annotated[
        bool, typer.Option("--share", help="Nodes read their share of the experiment's data, not their own: to try it.")
    ] = False,
    set_: Set = None,
    data_dir: DataDir = None,
) -> None:
    """Make a folder for each machine of a federation: certificates, keys, the app, services, containers, a page.

    All nodes take part in each round; `--set run.fraction=0.5` asks half of them.
    """
    with _with_flower():
        from fedfuse.config.experiment import load
        from fedfuse.flower.machines.folders import Plan, make
    look_in(data_dir)
    settings = {"run.fraction": 1.0, **dotted_settings(set_, partition__clients=len(node))}
    plan = Plan(load(experiment or "digits", settings), server, port, node, share or experiment is None)
    folder = out_dir or Path("federation")
    make(plan, folder)
    out.print(f"{folder}: a folder for {server} and for each of {len(node)} nodes.", highlight=False)
    if experiment is None:
        out.print("No --experiment was given: nodes share scikit-learn's digits, as a trial.", highlight=False)
    out.print(
        f"Next: {folder / 'README.md'}. Keep {folder / 'authority'} offline: its key can sign for the server.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def add(
    name: Annotated[str, typer.Argument(help="Name of the further node.")],
    to: Annotated[Path, typer.Option(help="What `fedfuse flower init` made, with the server's folder in it.")],
) -> None:
    """Make the folder of a further node. It may join while a run is going on."""
    with _with_flower():
        from fedfuse.flower.machines import folders
    number = folders.add(to, name)
    key = to / "server" / "nodes" / f"{name}.pub"
    out.print(
        f"{to / name}: the folder of {name}, client {number}. Copy {key} into nodes/ at the server, and type "
        "`fedfuse flower register` there.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def renew(
    server: Annotated[Path, typer.Argument(help="The server's folder, or a copy of it.")],
    authority: Annotated[Path, typer.Option(help="The folder with the authority's key.")],
) -> None:
    """Give the server a new certificate and key, signed by the same authority: nodes need no change."""
    with _with_flower():
        from fedfuse.flower.machines import folders
    folders.renew(authority, server)
    out.print(f"{server}: trust/server.pem and keys/server.key are new. Restart the server's proxy.", highlight=False)


def start(folder: Folder = HERE) -> None:
    """Start the programs of this machine, and keep them running until Ctrl-C."""
    with _with_flower():
        from fedfuse.flower.machines.machine import read_machine
        from fedfuse.flower.machines.start import start as start_machine
    try:
        start_machine(
            read_machine(folder), folder, lambda text: out.print(text, highlight=False, markup=False, soft_wrap=True)
        )
    except KeyboardInterrupt:
        out.print("stopped")


def check(folder: Folder = HERE) -> None:
    """Say what is wrong on this machine, and what to do about it. Exit code 1 if anything is."""
    with _with_flower():
        from fedfuse.flower.machines.check import check_machine
        from fedfuse.flower.machines.machine import read_machine
    machine = read_machine(folder)
    problems = check_machine(machine, folder)
    out.print(machine.title, highlight=False)
    for topic, each in problems.items():
        for text in each or ["ok"]:
            out.print(f"  {topic}: {text}", highlight=False, markup=False, soft_wrap=True)
    count = sum(len(each) for each in problems.values())
    if count:
        out.print(f"{count} problem{'s' if count > 1 else ''}", highlight=False)
        raise typer.Exit(1)


def register(folder: Folder = HERE) -> None:
    """At the server: admit the nodes whose public keys are in nodes/."""
    with _with_flower():
        from fedfuse.flower.machines.control import Control
    new = Control(_server(folder)).register()
    out.print(f"registered: {', '.join(new)}" if new else "all nodes were registered already", highlight=False)


def run(
    folder: Folder = HERE,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished round.")] = False,
) -> None:
    """At the server: register the nodes, wait for them, and run the experiment."""
    with _with_flower():
        from fedfuse.flower.machines.control import Control
        from fedfuse.flower.machines.machine import read_machine
    control = Control(_server(folder))
    if new := control.register():
        out.print(f"registered: {', '.join(new)}", highlight=False)
    path = control.run(read_machine(folder), resume)
    out.print(f"finished: {path}; `fedfuse report {path}` writes its report", highlight=False, soft_wrap=True)


def status(
    folder: Folder = HERE,
    of: Annotated[Path | None, typer.Option("--run", help="Run directory; by default the newest in runs/.")] = None,
) -> None:
    """At the server: show nodes, rounds and refusals."""
    with _with_flower():
        from rich.table import Table

        from fedfuse.flower.machines.status import status as read_status
    now = read_status(_server(folder), of)
    table = Table("node", "state", "client", "accepted", "refused", box=None, header_style="bold")
    for node in now.nodes:
        client = "" if node.client is None else str(node.client)
        table.add_row(node.name, node.state, client, str(node.accepted), str(node.refused))
    out.print(table)
    if now.problem is not None:
        out.print(now.problem, highlight=False, markup=False, soft_wrap=True)
    where = "no run yet" if now.run is None else f"{now.run.name}: round {now.rounds} of {now.total}, {now.state}"
    accuracy = "" if now.accuracy is None else f", accuracy {100 * now.accuracy:.2f} %"
    out.print(where + accuracy, highlight=False)
    for number, who, reason in now.refusals:
        out.print(f"  round {number}: {who} {reason}", highlight=False, markup=False, soft_wrap=True)


def _server(folder: Path) -> Place:
    from fedfuse.flower.machines.machine import Place, read_machine

    machine = read_machine(folder)
    if machine.role != "server":
        raise FedfuseError(f"{folder} is the folder of {machine.title}: this command is for the server")
    return Place(folder.resolve())
