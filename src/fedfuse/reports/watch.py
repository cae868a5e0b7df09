"""Serve the page of ongoing runs on loopback. The page updates when the records change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedfuse.engines.workers import Marker
from fedfuse.records.directory import EVALUATION, EVENTS, EXPERIMENT, ROUNDS, SCRATCH
from fedfuse.reports import html
from fedfuse.reports.page import report_of
from fedfuse.reports.read import find
from fedfuse.sweeps.results import TRIALS
from fedfuse.types import FedfuseError

HOST = "127.0.0.1"
WATCHED = (EXPERIMENT, ROUNDS, EVALUATION, EVENTS, TRIALS)


def version(paths: Sequence[Path]) -> str:
    """Return a digest that changes when a file that the page is built from changes."""
    digest = hashlib.sha256()
    folders = [folder for path in paths for folder in (path, *sorted(p.parent for p in path.glob(f"*/{EXPERIMENT}")))]
    for file in (folder / name for folder in folders for name in WATCHED):
        try:
            status = file.stat()
        except OSError:
            continue
        digest.update(f"{file} {status.st_mtime_ns} {status.st_size}\n".encode())
    digest.update(" ".join(state for folder in folders for state in Marker.states(folder / SCRATCH)).encode())
    return digest.hexdigest()


def server(paths: Sequence[Path], port: int = 0, *, target: float | None = None) -> ThreadingHTTPServer:
    """Return a server that listens on loopback only; the caller calls `serve_forever`. Port 0 selects a free port."""
    report_of(paths, target)  # raises here if the runs cannot be shown

    def state() -> str:
        finished = all(run.finished for run in find(paths))
        return json.dumps({"version": version(paths), "finished": finished})

    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html", lambda: html.live_page(report_of(paths, target))),
        "/body.html": ("text/html", lambda: html.body(report_of(paths, target))),
        "/state.json": ("application/json", state),
        "/plotly.js": ("text/javascript", html.plotly_script),
    }
    try:
        return ThreadingHTTPServer((HOST, port), _handler(pages))
    except OSError as error:
        raise FedfuseError(f"port {port} cannot be used ({error.strerror}): give another --port") from error


def _handler(pages: dict[str, tuple[str, Callable[[], str]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Otherwise a website whose name resolves to loopback could read this page (DNS rebinding).
            if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            if self.path not in pages:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            kind, make = pages[self.path]
            try:
                content = make().encode()
            except (FedfuseError, OSError) as error:  # for example, the directory was moved
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "max-age=86400" if self.path == "/plotly.js" else "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing: a line per request would bury the program's own output."""

    return Handler
