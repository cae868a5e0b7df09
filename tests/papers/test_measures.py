"""Measures of tables and figures that are no comparison of runs."""

import torch

from fedfuse.papers.measures.parameters import millions
from fedfuse.papers.measures.partition import numbers


def test_parameters_include_the_shared_head() -> None:
    # four hidden units, a projection to the head, its hidden layer, and its classes
    assert millions("mlp:4", 10, (3, 2, 2)) == round(
        (12 * 4 + 4 + 4 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10) / 1e6, 6
    )


def test_numbers_of_a_partition() -> None:
    found = numbers(torch.tensor([[4, 4], [0, 4]]))  # entropies ln 2 and 0; sizes 8 and 4
    assert found == {"label entropy": 0.346574, "spread of sizes": 0.333333}
