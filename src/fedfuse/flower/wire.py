"""The format of Flower messages: one array that holds one safetensors blob, and a few plain facts about it.

A model is one blob, not an array per tensor: Flower keeps an object per array, and a net has hundreds of tensors.
The client's number is among the facts, not in the blob, so that clients with the same task receive the same bytes:
Flower stores and uploads them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Message, RecordDict

from fedfuse import codec
from fedfuse.types import Failure, FedfuseError, Task, Tensors, Update

PROTOCOL = 2  # incremented when the format changes; a node refuses tasks of another version
TASK, UPDATE, ABOUT, BLOB = "task", "update", "about", "blob"
REPLIED = (
    "protocol", "client", "round", "attempt", "kept", "failure", "partition-id", "capability", "name", "own-data",
    "examples",
)  # fmt: skip
CACHE_SIZE = 8  # encoded tasks in the cache: one per architecture, if clients share models
NOBODY = -1  # placeholder for the client in a task's blob
LONGEST_REASON = 500

About = Mapping[str, ConfigRecordValues]


class Encoder:
    """Encodes the tasks of one round as arrays, each once for all clients that receive it."""

    def __init__(self) -> None:
        # The groups are held too, so that their ids are not reused.
        self._cache: dict[tuple[int, ...], tuple[list[Tensors], Array]] = {}

    def array(self, task: Task) -> Array:
        groups = task.groups()
        key = tuple(id(group) for group in groups)
        if key not in self._cache:
            if len(self._cache) == CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = groups, array_of(codec.encode_task(replace(task, client=NOBODY)))
        return self._cache[key][1]


def array_of(blob: bytes) -> Array:
    return Array("uint8", (len(blob),), "safetensors", blob)


def content(about: About, name: str | None = None, array: Array | None = None) -> RecordDict:
    """Return a message's content: the facts and, under `name`, the blob."""
    records = RecordDict({ABOUT: ConfigRecord(dict(about))})
    if name is not None and array is not None:
        records[name] = ArrayRecord({BLOB: array})
    return records


def about(message: Message) -> About:
    """Return the facts of a received message. The sender chose their types: check them before use."""
    facts = message.content.get(ABOUT) if message.has_content() else None
    if not isinstance(facts, ConfigRecord):
        raise FedfuseError(f"a message without its record {ABOUT!r}: use fedfuse's apps on both sides")
    return facts


def blob(message: Message, name: str) -> bytes:
    record = message.content.get(name) if message.has_content() else None
    array = record.get(BLOB) if isinstance(record, ArrayRecord) else None
    if array is None or not isinstance(array.data, bytes):
        raise FedfuseError(f"a message without its record {name!r}: use fedfuse's apps on both sides")
    return array.data


def read_task(message: Message) -> Task:
    """Return the task in a message from the server."""
    facts = about(message)
    if facts.get("protocol") != PROTOCOL:
        raise FedfuseError(
            f"the server uses protocol version {facts.get('protocol')!r}, this node version {PROTOCOL}: "
            "install the same fedfuse on both"
        )
    client = whole(facts, "client")
    return replace(codec.decode_task(blob(message, TASK)), client=client)


def whole(facts: About, key: str) -> int:
    value = facts.get(key)
    if type(value) is not int or value < 0:
        raise FedfuseError(
            f"received a message whose {key} is {value!r}, not a whole number: install the server's fedfuse"
        )
    return value


def reply(request: About, answer: Update | Failure, kept: bool) -> RecordDict:
    """Return the content of a node's reply: its update, or the reason of its failure."""
    task_facts: dict[str, ConfigRecordValues] = {key: request[key] for key in ("client", "round", "attempt")}
    if isinstance(answer, Failure):
        return content({**task_facts, "failure": excerpt(answer.reason)})
    return content({**task_facts, "kept": kept}, UPDATE, array_of(codec.encode_update(answer)))


def excerpt(reason: object) -> str:
    """Return an untrusted text as one printable line of bounded length, for records and terminals."""
    line = "".join(c if c.isprintable() else " " for c in str(reason))
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + " ..."
