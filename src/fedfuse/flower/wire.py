"""What travels over Flower: one array that holds one safetensors blob, and a few plain facts about it.

A model as one blob, not as an array per tensor: Flower keeps an object per array, and a net has hundreds of tensors.
Who is asked stands among the facts and not in the blob, so that all who are sent the same are sent the same bytes:
Flower stores and uploads them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Message, RecordDict

from fedfuse import codec
from fedfuse.types import Failure, FedfuseError, Task, Tensors, Update

PROTOCOL = 1  # raised when what travels changes: a node and a server that differ say so and stop
TASK, UPDATE, ABOUT, BLOB = "task", "update", "about", "blob"
REPLIED = ("protocol", "client", "round", "attempt", "kept", "failure", "partition-id", "capability")
HELD = 8  # encoded tasks that are kept for others: as many as there are architectures, where all share theirs
NOBODY = -1  # stands for the client in a task's blob
LONGEST_REASON = 500

About = Mapping[str, ConfigRecordValues]


class Encoder:
    """Tasks of one round as arrays, each encoded once however many clients are sent it."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], tuple[list[Tensors], Array]] = {}  # groups are held: their ids stay theirs

    def array(self, task: Task) -> Array:
        groups = task.groups()
        key = tuple(id(group) for group in groups)
        if key not in self._made:
            if len(self._made) == HELD:
                del self._made[next(iter(self._made))]
            self._made[key] = groups, array_of(codec.encode_task(replace(task, client=NOBODY)))
        return self._made[key][1]


def array_of(blob: bytes) -> Array:
    return Array("uint8", (len(blob),), "safetensors", blob)


def content(about: About, name: str | None = None, array: Array | None = None) -> RecordDict:
    """A message's content: the facts and, under `name`, the blob."""
    records = RecordDict({ABOUT: ConfigRecord(dict(about))})
    if name is not None and array is not None:
        records[name] = ArrayRecord({BLOB: array})
    return records


def about(message: Message) -> About:
    """The facts of a message from outside. Their types are whatever the sender chose."""
    found = message.content.get(ABOUT) if message.has_content() else None
    if not isinstance(found, ConfigRecord):
        raise FedfuseError("a message without its facts: not one of fedfuse")
    return found


def blob(message: Message, name: str) -> bytes:
    record = message.content.get(name) if message.has_content() else None
    array = record.get(BLOB) if isinstance(record, ArrayRecord) else None
    if array is None or not isinstance(array.data, bytes):
        raise FedfuseError(f"a message without its {name}")
    return array.data


def read_task(message: Message) -> Task:
    """The task that a node is sent."""
    facts = about(message)
    if facts.get("protocol") != PROTOCOL:
        raise FedfuseError(
            f"the server speaks version {facts.get('protocol')!r} of what travels, this node {PROTOCOL}: "
            "install the same fedfuse on both"
        )
    client = whole(facts, "client")
    return replace(codec.decode_task(blob(message, TASK)), client=client)


def whole(facts: About, key: str) -> int:
    value = facts.get(key)
    if type(value) is not int or value < 0:
        raise FedfuseError(f"a message whose {key} is {value!r}, not a whole number")
    return value


def reply(asked: About, answer: Update | Failure, kept: bool) -> RecordDict:
    """What a node answers: its update, or why there is none."""
    echoed: dict[str, ConfigRecordValues] = {key: asked[key] for key in ("client", "round", "attempt")}
    if isinstance(answer, Failure):
        return content({**echoed, "failure": told(answer.reason)})
    return content({**echoed, "kept": kept}, UPDATE, array_of(codec.encode_update(answer)))


def told(reason: object) -> str:
    """A reason from outside as one line of bounded length: it goes into records and onto terminals."""
    line = "".join(c if c.isprintable() else " " for c in str(reason))
    return line if len(line) <= LONGEST_REASON else line[:LONGEST_REASON] + " ..."
