"""The end of a client's name: how it trains and uploads."""

import pytest

from fedfuse.models.one_bit import OneBit
from fedfuse.models.precision import Precision, split
from fedfuse.types import FedfuseError

ONE = OneBit(keep="none", gradient="xnor")


@pytest.mark.parametrize(
    ("name", "arch", "precision"),
    [
        ("resnet8", "resnet8", None),
        ("resnet8:gn", "resnet8:gn", None),
        ("resnet8:bn:1bit", "resnet8:bn", Precision("1bit", OneBit())),
        ("resnet8:1bit:keep=none:gradient=xnor", "resnet8", Precision("1bit", ONE)),
        ("mlp:64-32:int8", "mlp:64-32", Precision("int8")),
        ("resnet8+head128:bfloat16", "resnet8+head128", Precision("bfloat16")),
        ("mine.nets:small:1bit", "mine.nets:small", Precision("1bit", OneBit())),
        ("hf:folder:float32", "hf:folder", Precision()),
        ("hf:org/int8", "hf:org/int8", None),
    ],
)
def test_a_name_is_split(name: str, arch: str, precision: Precision | None) -> None:
    assert split(name) == (arch, precision)


@pytest.mark.parametrize("precision", [Precision(), Precision("int8"), Precision("1bit"), Precision("1bit", ONE)])
def test_what_is_stated_is_read_back(precision: Precision) -> None:
    assert Precision.parse(precision.upload, precision.net) == precision


@pytest.mark.parametrize(
    "stated", [("int4", ""), ("int8", ":1bit"), (None, ""), (1, 2), ("1bit", ":1bit:x=y"), ("1bit", None)]
)
def test_what_nobody_states_is_refused(stated: tuple[object, object]) -> None:
    with pytest.raises(FedfuseError):
        Precision.parse(*stated)
