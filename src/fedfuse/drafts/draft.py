"""Write a first experiment as a commented TOML file, after checking that it runs as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedfuse.config.experiment import Experiment
from fedfuse.data.sources.location import Location
from fedfuse.drafts.look import Seen, facts
from fedfuse.drafts.plan import Plan, plans
from fedfuse.runs.setup import check
from fedfuse.types import FedfuseError

SEEDS = 3  # for which the draft is checked: those of `fedfuse compare --seeds 3`
WIDTH = 26  # characters of a setting before its comment


def draft(seen: Seen, name: str, location: Location) -> str:
    """Return the text of an experiment that runs on this data. Raise an error if the data is too small for any."""
    problem: FedfuseError | None = None
    for plan in plans(seen):
        try:
            for seed in range(SEEDS):
                sections = plan.sections(name)
                check(Experiment(**{**sections, "run": {**plan.run, "seed": seed}}), location)
            return text(seen, plan)
        except FedfuseError as error:
            problem = problem or error
    raise FedfuseError(f"{seen.name}: no experiment could be made for {len(seen.data.train)} examples: {problem}")


def text(seen: Seen, plan: Plan) -> str:
    """Return the experiment as TOML, with a comment on each choice."""
    left_out = "; ".join(f"{column} {why}" for column, why in seen.left_out.items())
    comments = {
        "data": {
            "size": f"all are resized to so many pixels a side; {seen.reasons.get('size', 'as it was set')}",
            "label": f"chosen {seen.reasons['label']}" if "label" in seen.reasons else "the column of labels",
            "features": f"left out: {left_out}" if left_out else "the columns of numbers and categories",
            "validation": "share of the training data that the server keeps, to choose between models",
        },
        "pool": {"size": "share of the rest that is the pool: unlabeled data at the server, on which models are fused"},
        "partition": {
            "clients": f"about {plan.each:,} examples each",
            "alpha": "lower: fewer classes per client; 100 is nearly even",
            "min_size": "no client has fewer examples",
            "column": "says whose an example is",
        },
        "models": {"clients": "see `fedfuse list`", "server": "a larger one, for fed-et and fedgkt; others ignore it"},
        "local": {"epochs": "passes over its own data that a client makes in a round"},
        "algorithm": {
            "name": "fuses the clients' models on the pool; compare with fedavg",
            "steps": "of distillation in a round; the paper takes up to 10,000",
            "batch_size": "of the pool",
            "patience": "steps without a better validation accuracy after which it stops",
        },
        "run": {},
    }  # fmt: skip
    head = [f"# {key}: {value}" for key, value in facts(seen).items()]
    parts = {
        "data": plan.data, "pool": plan.pool, "partition": plan.partition, "models": plan.models,
        "local": plan.local, "algorithm": plan.algorithm, "run": plan.run,
    }  # fmt: skip
    titles = {"pool": "data.pool"}
    blocks = [
        "\n".join([f"[{titles.get(title, title)}]", *_lines(settings, comments[title])])
        for title, settings in parts.items()
    ]
    return "\n".join([f"# {seen.name}, as `fedfuse init` saw it", *head, "", "\n\n".join(blocks)]) + "\n"


def _lines(settings: Mapping[str, Any], comments: Mapping[str, str]) -> list[str]:
    lines = []
    for key, value in settings.items():
        line = f"{key} = {_toml(value)}"
        lines.append(f"{line:{WIDTH}}  # {comments[key]}" if comments.get(key) else line)
    return lines


def _toml(value: Any) -> str:
    """Return a value as TOML, in one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"value": value}).strip().removeprefix("value = ")


def write(content: str, file: Path) -> None:
    """Write a new file. Refuse to overwrite one."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise already_exists(file) from error


def already_exists(file: Path) -> FedfuseError:
    return FedfuseError(f"{file} already exists: choose another --out, or delete it")
