"""Engines run the clients' work: one after the other, in threads, or in worker processes, all with the same bits."""

from fedfuse.engines.engine import Engine
from fedfuse.engines.in_process import InProcess
from fedfuse.engines.in_threads import InThreads
from fedfuse.engines.workers import Workers

__all__ = ["Engine", "InProcess", "InThreads", "Workers"]
