"""Files of one line per record: what a crash cuts short is dropped, and nothing is glued to it."""

from pathlib import Path

import pytest

from fedfuse.records import events, lines
from fedfuse.records.lines import Lines
from fedfuse.types import FedfuseError


def test_a_torn_line_is_dropped_and_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert Lines.read(file) == Lines((), torn=False)
    lines.append(file, "one")
    file.write_bytes(file.read_bytes() + b'{"half": ')
    assert Lines.read(file) == Lines(("one",), torn=True)


@pytest.mark.parametrize("length", [0, 1, 5, lines.CHUNK - 1, lines.CHUNK, 3 * lines.CHUNK])
def test_what_is_appended_stands_on_its_own_line(tmp_path: Path, length: int) -> None:
    """The next event was once glued to a fragment, and the file was broken for ever."""
    file = tmp_path / "file"
    for start in (b"", b"one\n", b"one\ntwo\n"):
        file.write_bytes(start + b"x" * length)
        lines.append(file, "next")
        assert Lines.read(file) == Lines((*start.decode().split("\n")[:-1], "next"), torn=False)


def test_a_byte_that_is_no_utf_8_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one\ntw\xffo\n")
    with pytest.raises(FedfuseError, match="line 2: not UTF-8 at byte 3"):
        Lines.read(file)


@pytest.mark.parametrize("line", ["", "{", "[]", '{"at": 1}', '{"at": "now", "kind": "eaten", "round": 0}'])
def test_a_line_that_is_no_event_is_an_error_with_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "events.jsonl"
    events.append(file, "begun", 0)
    lines.append(file, line)
    with pytest.raises(FedfuseError, match=r"events\.jsonl, line 2"):
        events.read(file)
