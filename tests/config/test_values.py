"""Values on a command line."""

from typing import Any

import pytest

from fedfuse.config.values import format_value, parse_value, parse_values


@pytest.mark.parametrize(
    "value", [1, 1.0, True, 0.1 + 0.2, 1e-07, "sgd", "true", "1", "two words", "it's", "a,b", [1, "x"], {"a b": [1.5]}]
)
def test_a_formatted_value_is_parsed_as_the_same_value(value: Any) -> None:
    assert parse_value(format_value(value)) == value
    assert type(parse_value(format_value(value))) is type(value)


def test_a_word_needs_no_quotes_and_a_list_may_hold_commas() -> None:
    assert parse_values('sgd, [1, 2],"a,b", {x = [1, 2], y = 3},0.5') == [
        "sgd",
        [1, 2],
        "a,b",
        {"x": [1, 2], "y": 3},
        0.5,
    ]


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, "\0"])
def test_what_toml_cannot_read_is_a_word(text: str) -> None:
    assert parse_value(text) == text
