"""Every table and figure of the papers loads, and its experiments and algorithms can be made for each scale."""

import pytest

from fedfuse import signature
from fedfuse.papers.item import load, names
from fedfuse.papers.study import described, experiment_of
from fedfuse.runs.compare import variants


@pytest.mark.parametrize("name", names())
def test_an_item_resolves_at_each_of_its_scales(name: str) -> None:
    whole = load(name)
    for scale in whole.scales:
        item = whole.at(scale)
        assert item.rows
        assert item.groups
        if item.measured_by is not None:
            assert callable(signature.import_function(item.measured_by, "measure"))
        if not item.scale(scale).experiment:
            continue
        assert described(item, scale)
        for group in item.groups:
            experiment = experiment_of(item, group, scale)
            algorithms = [item.algorithm(row, scale, group) for row in item.rows_of(group.name) if row.algorithm]
            assert len(variants(experiment, algorithms, [0])) == len(set(algorithms))


@pytest.mark.parametrize("name", names())
def test_every_number_and_claim_of_the_paper_belongs_to_a_scale(name: str) -> None:
    item = load(name)
    measured = [item.at(scale) for scale in item.scales]
    assert {n for each in measured for n in each.numbers} == set(item.numbers)
    assert {claim.says for each in measured for claim in each.claims} == {claim.says for claim in item.claims}
