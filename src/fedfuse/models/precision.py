"""How a client trains and uploads, apart from its architecture: the end of a name in `models.clients`.

- `resnet8:bn:1bit`: the client trains a one-bit net, and uploads one bit per weight
- `resnet8:bn:int8`, `:bfloat16`, `:float32`: it trains in full precision, and uploads its model in this format

To the server, all of them have the architecture `resnet8:bn`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedfuse.models.one_bit import OneBit, binary_weights
from fedfuse.packing import FULL, UPLOADS, Upload, packable
from fedfuse.types import FedfuseError, Snapshot

_END = re.compile(rf"(.+?):({'|'.join(UPLOADS)})((?::[a-z]+=[a-z]+)*)")
_ONE_BIT: Upload = "1bit"


@dataclass(frozen=True)
class Precision:
    """How one client trains and uploads: `one_bit` for a one-bit net, and the format of the upload."""

    upload: Upload = FULL
    one_bit: OneBit | None = None

    @staticmethod
    def parse(upload: object, net: object) -> Precision:
        """Return the precision with this `upload` and `net`, which another party may have stated."""
        for known in UPLOADS:
            if upload == known and net == "":
                return Precision(known)
        if upload == _ONE_BIT and isinstance(net, str) and net.startswith(f":{_ONE_BIT}"):
            return Precision(_ONE_BIT, OneBit.parse(net[1:]))
        raise FedfuseError(f"unknown precision: an upload as {upload!r} of a net {net!r}: install the server's fedfuse")

    def __str__(self) -> str:
        return self.upload if self.one_bit is None else f"{self.upload}, one-bit net"

    @property
    def net(self) -> str:
        """The end of the name of the net that the client trains: empty, or as in `:1bit`."""
        return "" if self.one_bit is None else f":{self.one_bit}"

    def trained(self, model: Snapshot) -> Snapshot:
        """Return the model for the net that the client trains."""
        return model if self.one_bit is None else replace(model, arch=model.arch + self.net)

    def packed_weights(self, net: nn.Module) -> Sequence[str]:
        """Return the names of the weights that the client packs: all that have filters; as one bit, the binarised."""
        if self.upload == FULL:
            return []
        weights = [name for name, parameter in net.named_parameters() if packable(parameter)]
        if self.upload != _ONE_BIT:
            return weights
        binary = binary_weights(net, (self.one_bit or OneBit()).keep)
        return [name for name in weights if name in binary]


def split(name: str) -> tuple[str, Precision | None]:
    """`resnet8:bn:1bit` -> (`resnet8:bn`, one bit); None where the name says nothing of precision."""
    match = _END.fullmatch(name)
    if match is None or (match[3] and match[2] != _ONE_BIT):
        return name, None
    return match[1], Precision.parse(match[2], f":{match[2]}{match[3]}" if match[2] == _ONE_BIT else "")
