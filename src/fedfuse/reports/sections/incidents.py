"""What went wrong or was interrupted: refusals, warnings, crashes, resumptions."""

from __future__ import annotations

from collections.abc import Sequence

from fedfuse.records.events import Event
from fedfuse.reports.elements import Section, Table
from fedfuse.reports.figure import Cell
from fedfuse.reports.read import RunOnDisk
from fedfuse.reports.variants import Line
from fedfuse.terminal.progress import problems


def section(lines: Sequence[Line]) -> Section | None:
    rows: list[list[Cell]] = []
    for line in lines:
        for run in line.runs:
            rows += [[line.name, run.seed, *incident] for incident in of_run(run)]
    if not rows:
        return None
    caption = "A refused or failed client costs its own answer in that round, never the run."
    columns = ["algorithm", "seed", "round", "what"]
    return Section(
        "incidents", "Incidents", [Table("incidents", "What happened", columns, rows, ("algorithm", "what"), caption)]
    )


def of_run(run: RunOnDisk) -> list[tuple[int, str]]:
    """By round: what its records and its events tell."""
    found = [
        (done.round, _without_round(text)) for done in run.history for text in [*problems(done), *_dropped(done.facts)]
    ]
    return sorted([*found, *_interruptions(run.events)], key=lambda incident: incident[0])


def _without_round(text: str) -> str:
    head, colon, rest = text.partition(": ")
    return rest if colon and head.startswith("round ") else text


def _dropped(facts: object) -> list[str]:
    """Answers that were accepted and yet could not be used."""
    held = facts if isinstance(facts, dict) else {}
    left_out = [f"client {client} was left out of the fusion: {why}" for client, why in held.get("dropped", {}).items()]
    return [*left_out, *(f"a teacher was left out: {why}" for why in held.get("silent", []))]


def _interruptions(events: Sequence[Event]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    before: Event | None = None
    for event in events:
        if event.kind == "resumed":
            killed = before is not None and before.kind in ("begun", "resumed", "warning")
            found.append((event.round, "ended without a word, as when it is killed; resumed" if killed else "resumed"))
        elif event.kind == "stopped":
            found.append((event.round, f"stopped: {event.text}"))
        elif event.kind == "warning":
            found.append((event.round, event.text))
        before = event
    return found
