"""Incidents: refusals, warnings, crashes, resumptions."""

from __future__ import annotations

from collections.abc import Sequence

from fedfuse.facts import Facts
from fedfuse.records.directory import EVENTS, ROUNDS
from fedfuse.records.events import Event
from fedfuse.records.lines import Lines
from fedfuse.records.stored import StoredRun
from fedfuse.reports.elements import Section, Table
from fedfuse.reports.figure import Cell
from fedfuse.reports.variants import Variant


def section(variants: Sequence[Variant]) -> Section | None:
    rows: list[list[Cell]] = []
    for variant in variants:
        for run in variant.runs:
            rows += [[variant.name, run.seed, *incident] for incident in of_run(run)]
    if not rows:
        return None
    caption = "A refused or failed client only loses its own update of that round; the run continues."
    columns = ["algorithm", "seed", "round", "what"]
    return Section(
        "incidents",
        "Incidents",
        [Table("incidents", "Incidents by round", columns, rows, ("algorithm", "what"), caption)],
    )


def of_run(run: StoredRun) -> list[tuple[int, str]]:
    """Return the incidents in a run's records and events, sorted by round."""
    incidents = [
        (record.round, _without_round(text))
        for record in run.history
        for text in [*record.problems(), *_left_out(record.facts)]
    ]
    torn = [
        (len(run.history), f"the last line of {name} is incomplete, as after a kill: it is left out")
        for name in (ROUNDS, EVENTS)
        if Lines.read(run.path / name).torn
    ]
    return sorted([*incidents, *_interruptions(run.events), *torn], key=lambda incident: incident[0])


def _without_round(text: str) -> str:
    head, colon, rest = text.partition(": ")
    return rest if colon and head.startswith("round ") else text


def _left_out(facts: Facts) -> list[str]:
    """Return the updates that were accepted but could not be used."""
    clients = [f"client {client} was left out of the fusion: {why}" for client, why in facts.dropped.items()]
    return [*clients, *(f"a teacher was left out: {why}" for why in facts.silent)]


def _interruptions(events: Sequence[Event]) -> list[tuple[int, str]]:
    incidents: list[tuple[int, str]] = []
    previous: Event | None = None
    for event in events:
        if event.kind == "resumed":
            killed = previous is not None and previous.kind in ("begun", "resumed", "joined", "warning")
            incidents.append((event.round, "resumed after an abrupt end, as when killed" if killed else "resumed"))
        elif event.kind == "stopped":
            incidents.append((event.round, f"stopped: {event.text}"))
        elif event.kind == "joined":
            incidents.append((event.round, f"{event.text} joined"))
        elif event.kind == "warning":
            incidents.append((event.round, event.text))
        previous = event
    return incidents
