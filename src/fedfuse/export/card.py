"""The model card of an exported model, made from the records: metadata for hubs, and text for readers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w
from jinja2 import Environment, StrictUndefined

from fedfuse.data.sources import SOURCES
from fedfuse.models import TEXT_NETS
from fedfuse.models.file import Header
from fedfuse.models.hf_name import MARK
from fedfuse.models.transformers_folder import holds
from fedfuse.records.directory import FederationFacts
from fedfuse.records.record import RoundRecord
from fedfuse.records.stored import StoredExperiment

CARD = """\
---
{% for key, value in front.items() -%}
{{ key }}: {{ value }}
{% endfor -%}
---

# {{ title }}

`{{ arch }}`, {{ "{:,}".format(parameters) }} parameters (with buffers), trained by federated learning with fedfuse:
{{ algorithm }}, {{ final.round }} rounds, {{ clients }} clients. These are the weights after the last round.

## Results

| | after the last round ({{ final.round }}) | best of all rounds |
| --- | --- | --- |
{% for name, last, best, round in results -%}
| {{ name }} | {{ last }} | {{ best }} (round {{ round }}) |
{% endfor %}
The best round is stated for comparison; its weights are not in this folder.

## Data

- Source: {{ source }}, inputs of shape {{ header.shape | list }}, {{ header.classes }} classes: {{ labels }}
- Examples: {{ examples.train }} for training, held by the clients; {{ examples.validation }} for validation and
  {{ examples.pool }} unlabeled ones (pool: {{ pool }}), held by the server; {{ examples.test }} for testing
- Fingerprint of the data and its partition: `{{ provenance.data }}` (SHA-256)

## Settings

The seed of the run is {{ provenance.seed }}.

```toml
{{ settings }}```

## Use

```python
{{ "import fedfuse.compute.batches\nimport torch" if header.tokenizer else "import fedfuse" }}

model = fedfuse.load_model("path/to/this/folder"{{ trust }})
{% if header.tokenizer -%}
from tokenizers import Tokenizer

text = Tokenizer.from_file(str(model.tokenizer)).encode("a text to classify")
inputs = {"input_ids": torch.tensor([text.ids]), "attention_mask": torch.tensor([text.attention_mask])}
logits = fedfuse.compute.batches.forward(model.net, inputs)
{% elif texts -%}
logits = model.net(input_ids=ids, attention_mask=mask)  # (B, L) each, int64, L up to {{ header.shape[0] }}
{% else -%}
logits = model.net(x)  # x: (B, {{ header.shape | join(", ") }}), normalised
{% endif -%}
model.labels[int(logits[0].argmax())]
```

{{ normalised }}
{% if own_code %}
The net is built by `{{ arch }}`: that module must be on your path, and `trust_code=True` allows importing it.
{% endif -%}
{% if transformers %}
Without fedfuse, with the same outputs:

```python
from transformers import {{ auto }}

model = {{ auto }}.from_pretrained("path/to/this/folder")
{% if header.tokenizer -%}
logits = model(**inputs).logits
{% else -%}
logits = model({{ "input_ids=ids, attention_mask=mask" if texts else "pixel_values=x" }}).logits
{% endif -%}
```
{% endif %}
## Versions

fedfuse {{ provenance.fedfuse }}, torch {{ provenance.torch }}, Python {{ provenance.python }},
{{ provenance.machine }}, compute threads per process: {{ provenance.threads }}. The same versions and settings give the
same bits.
"""


@dataclass(frozen=True)
class Records:
    """The records of a run directory: `experiment.toml`, `federation.json`, `rounds.jsonl`."""

    experiment: StoredExperiment
    federation: FederationFacts
    history: list[RoundRecord]

    @property
    def final(self) -> RoundRecord:
        return self.history[-1]

    def name_of(self, arch: str) -> str:
        """The model's name in the records. A net that has grown (FedMA) is recorded under its first architecture."""
        return arch if arch in self.final.models else next(iter(self.final.models))


def card(records: Records, header: Header, parameters: int, license: str | None, own_code: bool) -> str:
    experiment, sections = records.experiment, records.experiment.table
    settings = {key: sections[key] for key in ("partition", "local", "algorithm")}
    settings["run"] = {
        key: value for key, value in sections["run"].items() if key in ("rounds", "fraction", "selection")
    }
    return (
        Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701  (Markdown)
        .from_string(CARD)
        .render(
            front=_front_matter(records, header, license),
            title=f"{experiment.name}: {header.arch}",
            arch=header.arch,
            parameters=parameters,
            algorithm=experiment.algorithm.name,
            clients=experiment.partition.clients,
            final=records.final,
            results=_results(records, header.arch),
            source=_source(experiment.data.source)[0],
            header=header,
            labels=", ".join(" ".join(label.split()) for label in header.labels),
            examples=records.federation.examples,
            pool=experiment.data.pool.get("kind", "none"),
            provenance=experiment.provenance,
            settings=tomli_w.dumps(settings),
            trust=", trust_code=True" if own_code else "",
            normalised=_normalised(header),
            own_code=own_code,
            transformers=holds(header.arch),
            texts=_reads_texts(header),
            auto=f"AutoModelFor{'Sequence' if _reads_texts(header) else 'Image'}Classification",
        )
    )


def _front_matter(records: Records, header: Header, license: str | None) -> dict[str, str]:
    """The metadata for hubs. Each value is JSON, which is also YAML."""
    numbers = "image-classification" if len(header.shape) == 3 else "tabular-classification"
    task = "text-classification" if _reads_texts(header) else numbers
    description, dataset = _source(records.experiment.data.source)
    algorithm = records.experiment.algorithm.name
    accuracy = records.final.models[records.name_of(header.arch)].accuracy
    result = {
        "task": {"type": task},
        "dataset": {"type": dataset or "local", "name": description.replace("`", "")},
        "metrics": [{"type": "accuracy", "value": accuracy, "name": "test accuracy after the last round"}],
    }
    fields = {
        "license": license,
        "library_name": "fedfuse",
        "pipeline_tag": task,
        "tags": ["federated-learning", "fedfuse", algorithm],
        "datasets": [dataset] if dataset else None,
        "metrics": ["accuracy"],
        "model-index": [{"name": f"{records.experiment.name}: {header.arch}", "results": [result]}],
    }
    return {key: json.dumps(value, ensure_ascii=False) for key, value in fields.items() if value is not None}


def _source(name: str) -> tuple[str, str | None]:
    """A description of the data without local paths, and its id if it has one."""
    if name in SOURCES or (re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) and not Path(name).exists()):
        return f"`{name}`", name
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return f"`{name}`, a function", None
    return f"`{Path(name).name}`, local files", None


def _results(records: Records, arch: str) -> list[tuple[str, str, str, int]]:
    """The accuracies after the last round and in the best one. Without validation data, that row is missing."""
    name = records.name_of(arch)
    of_test = {r.round: r.models[name].accuracy for r in records.history if r.evaluated}
    of_validation = {r.round: r.validation_accuracy for r in records.history if r.validation_accuracy is not None}
    alone = list(records.federation.reported) == [name]
    rows = {
        "test accuracy": of_test,
        "validation accuracy" if alone else "validation accuracy (mean of the run's models)": of_validation,
    }
    return [(label, *_last_and_best(values)) for label, values in rows.items() if values]


def _last_and_best(by_round: Mapping[int, float]) -> tuple[str, str, int]:
    best = max(by_round, key=lambda round: by_round[round])
    return f"{100 * by_round[max(by_round)]:.2f} %", f"{100 * by_round[best]:.2f} %", best


def _reads_texts(header: Header) -> bool:
    """Whether the model reads texts: it has a tokenizer, or its name says so."""
    return (
        header.tokenizer is not None
        or header.arch.partition("+")[0].partition(":")[0] in TEXT_NETS
        or (header.arch.startswith(MARK) and len(header.shape) < 3)
    )


def _normalised(header: Header) -> str:
    if header.tokenizer:
        return (
            f"`tokenizer.json` encodes texts as in training: at most {header.shape[0]} tokens are used, of "
            f"{header.shape[1]:,} that the model knows."
        )
    if _reads_texts(header):
        return "Texts are encoded by the tokenizer of the training data, padded with 0 at the right (mask 0)."
    mean, std = ([round(value, 6) for value in values] for values in (header.mean, header.std))
    division = ", after bytes are divided by 255" if len(header.shape) == 3 else ""
    return f"Normalised x is `(x - mean) / std`{division}, with mean {mean} and std {std} (`model.mean`, `model.std`)."
