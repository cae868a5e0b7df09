"""Flower's own commands at the server: register nodes, list them, submit the app."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfuse.files import write_whole
from fedfuse.flower.loopback.federation import CONNECTION, write_connection
from fedfuse.flower.loopback.processes import COLOURS, environment
from fedfuse.flower.machines.machine import LINK_PORT, Machine, Place
from fedfuse.records import events
from fedfuse.records.directory import EVENTS
from fedfuse.runs.run import has_rounds
from fedfuse.types import FedfuseError

SECONDS = 120.0  # for a command of Flower's


@dataclass(frozen=True)
class Control:
    """`flwr` for the SuperLink of this folder."""

    place: Place

    @property
    def _home(self) -> Path:
        return self.place.home / "cli"

    def _command(self, arguments: Sequence[str]) -> list[str]:
        write_connection(self._home, LINK_PORT, self.place.local_authority)
        return [str(Path(sys.executable).parent / "flwr"), *arguments]

    def _ask(self, *arguments: str) -> Mapping[str, Any]:
        """Run a command and return the JSON object that it prints."""
        command = self._command([*arguments, CONNECTION, "--format", "json"])
        try:
            result = subprocess.run(
                command, env=environment(self._home), capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise FedfuseError(f"`flwr {' '.join(arguments)}` took longer than {SECONDS:g} s") from None
        output = COLOURS.sub("", result.stdout)
        start = output.find("{")
        try:
            answer: dict[str, Any] = json.loads(output[start:]) if start >= 0 else {}
        except ValueError:
            answer = {}
        if not answer.get("success"):
            text = str(answer.get("error-message") or output + result.stderr)
            said = text.strip().splitlines() or ["no reason given"]
            raise FedfuseError(
                f"the SuperLink of this machine does not take `flwr {' '.join(arguments)}` ({said[-1].strip()}): start "
                "it with `fedfuse flower start`, or see what `fedfuse flower check` says"
            )
        return answer

    def states(self) -> dict[str, str]:
        """Return the state of each node by its id: registered (never online), online, offline."""
        nodes = self._ask("supernode", "list")["nodes"]
        return {node["node-id"]: node["status"] for node in nodes if node["status"] != "unregistered"}

    def registered(self) -> dict[str, str]:
        """Return the node ids by name, as they were given when the nodes were registered."""
        if not self.place.registered.exists():
            return {}
        known: dict[str, str] = json.loads(self.place.registered.read_text(encoding="utf-8"))
        return known

    def register(self) -> list[str]:
        """Register the nodes whose public keys are in `nodes/` and that are not registered yet. Return their names."""
        known, states, new = self.registered(), self.states(), []
        for file in sorted(self.place.nodes.glob("*.pub")):
            if known.get(file.stem) in states:
                continue
            known[file.stem] = str(self._ask("supernode", "register", str(file))["node-id"])
            write_whole(self.place.registered, json.dumps(known, indent=2).encode())
            new.append(file.stem)
        return new

    def run(self, machine: Machine, resume: bool) -> Path:
        """Submit the app, show its log until it ends, and return the run directory."""
        path = self.place.runs / machine.experiment
        if has_rounds(path) and not resume:
            raise FedfuseError(f"{path} already holds a run: continue with --resume, or move it away")
        arguments = ["run", str(self.place.app), CONNECTION, "--stream"]
        if resume:
            arguments += ["--run-config", "resume=true"]
        code = subprocess.run(self._command(arguments), env=environment(self._home), check=False).returncode
        finished = (path / EVENTS).exists() and any(event.kind == "finished" for event in events.read(path / EVENTS))
        if code != 0 or not finished:
            raise FedfuseError(f"the run did not finish (`flwr run` ended with {code}): continue with --resume")
        return path
