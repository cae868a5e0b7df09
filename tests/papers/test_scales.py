"""What of an item belongs to one of its scales."""

import pytest
from pydantic import ValidationError

from fedfuse.config.named import ConfigError
from fedfuse.papers.item import Item
from fedfuse.types import FedfuseError

ITEM = Item(
    title="t", paper="FedDF", place="Table 1", shows="s", measure="rounds", target=0.8,
    small={"experiment": "digits", "groups": ["few", "half"], "rows": ["FedAvg", "FedDF"], "targets": {"few": 0.6}},
    full={"experiment": "cifar10"},
    rows=[{"name": name, "algorithm": name.lower()} for name in ("FedAvg", "FedProx", "FedDF")],
    groups=[{"name": "few"}, {"name": "half", "target": 0.7}, {"name": "many"}],
    numbers=[{"group": "few", "row": "FedProx", "value": 9}, {"group": "few", "row": "FedDF", "value": 5}],
    claims=[
        {"says": "fewer rounds", "higher": "FedAvg", "lower": "FedDF"},
        {"says": "fewer than FedProx", "higher": "FedProx", "lower": "FedDF"},
        {"says": "with some clients", "higher": "FedAvg", "lower": "FedDF", "groups": ["half", "many"]},
        {"says": "many are faster", "higher": "few / FedDF", "lower": "many / FedDF"},
    ],
)  # fmt: skip


def test_a_scale_has_its_groups_rows_numbers_claims_and_targets() -> None:
    small, full = ITEM.at("small"), ITEM.at("full")
    assert small.cells == {(group, row) for group in ("few", "half") for row in ("FedAvg", "FedDF")}
    assert [n.value for n in small.numbers] == [5]
    assert [(claim.says, group) for claim, group, _, _ in small.checks()] == [
        ("fewer rounds", "few"),
        ("fewer rounds", "half"),
        ("with some clients", "half"),
    ]
    assert [small.target_of(group) for group in ("few", "half")] == [0.6, 0.7]
    assert len(full.cells) == 9
    assert full.claims == ITEM.claims
    assert [full.target_of(group) for group in ("few", "half", "many")] == [0.8, 0.7, 0.8]


def test_single_groups_can_be_chosen_at_any_scale() -> None:
    assert [group.name for group in ITEM.at("full", ["many"]).groups] == ["many"]
    with pytest.raises(FedfuseError, match="no group 'most': it has few; half; many"):
        ITEM.at("small", ["most"])


@pytest.mark.parametrize("small", [{"groups": ["most"]}, {"rows": ["FedBE"]}, {"targets": {"most": 0.5}}])
def test_a_scale_that_names_what_is_not_there_is_refused(small: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no group or row"):
        Item(title="t", paper="FedDF", place="Table 1", shows="s", small={"experiment": "digits", **small})


def test_what_is_wrong_with_a_whole_item_is_an_error_in_words() -> None:
    with pytest.raises(ValidationError) as wrong:
        Item(title="t", paper="FedDF", place="Table 1", shows="s")
    problems = ConfigError.of(wrong.value, lambda _: ()).problems
    assert [problem.right for problem in problems] == ["give the small scale, or in not_small why there is none"]
