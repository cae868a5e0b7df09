"""`python -m tests.invariant.peak FOLDER WORKERS:CLIENTS...`: a round with each number of clients in turn.

After each it prints the most memory that this process ever had.

The net has half a million parameters (2 MB), the work of a client is one step, and the data is the same however
many clients share it: only what a round holds per client can make a difference.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import fedfuse


def main(folder: Path, *numbers: str) -> None:
    for number in numbers:
        workers, clients = map(int, number.split(":"))
        experiment = fedfuse.Experiment(
            data={"source": "synthetic", "examples": 2000, "classes": 3, "shape": [16], "validation": 0},
            partition={"scheme": "iid", "clients": clients},
            models={"clients": "mlp:1024-512"},
            local={"steps": 1, "batch_size": 2},
            run={"rounds": 1, "workers": workers},
        )
        run = fedfuse.run(experiment, folder / f"{workers}-{clients}")
        assert len(run.final.cohort) == clients
        assert run.final.rejected == {}
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # kB


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
