"""What DS-FL and decentralised logits refuse before a run."""

from __future__ import annotations

import pytest

from fedfuse.algorithms import ALGORITHMS
from fedfuse.fusion import SGD
from fedfuse.types import FedfuseError
from tests.doubles import context


@pytest.mark.parametrize("name", ["ds-fl", "decentralised-logits"])
def test_a_distiller_that_must_validate_is_refused(name: str) -> None:
    learn = SGD(lr=0.1, epochs=1, batch_size=32)
    ALGORITHMS[name](rows=64, distiller=learn).check(context())
    with pytest.raises(FedfuseError, match=r"keep_start = True.*leave keep_start out"):
        ALGORITHMS[name](rows=64, distiller=SGD(lr=0.1, epochs=1, batch_size=32, keep_start=True)).check(context())
