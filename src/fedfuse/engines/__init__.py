"""Engines run the clients' work: here one after the other, or in worker processes. Same bits either way."""

from fedfuse.engines.engine import Engine
from fedfuse.engines.in_process import InProcess
from fedfuse.engines.workers import Workers

__all__ = ["Engine", "InProcess", "Workers"]
