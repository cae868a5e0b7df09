"""How clients train, with any algorithm: the experiment's `[local]` section."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from fedfuse.packing import FULL, Upload, UploadOf
from fedfuse.signature import ONLY_NUMBERS


class LocalSettings(BaseModel):
    """Local training: its length in epochs or steps, its optimizer, its schedule over rounds, and stragglers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    _only_numbers = ONLY_NUMBERS

    epochs: PositiveInt | None = Field(None, description="passes over the client's own data in a round")
    steps: PositiveInt | None = Field(None, description="optimizer steps in a round, instead of epochs")
    batch_size: PositiveInt = 64
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: PositiveFloat = 0.1
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    clip: PositiveFloat | None = Field(None, description="bound on the gradient's norm")
    milestones: tuple[float, ...] = Field((), description="fractions of the rounds at which the learning rate falls")
    gamma: PositiveFloat = Field(0.1, description="factor on the learning rate at each milestone")
    stragglers: bool = Field(False, description="each client draws its epochs from 1..epochs, in each round")
    augment: str = Field("none", description="augmentation of the client's images: none, crop, flip, crop+flip")
    upload: Upload = Field(
        FULL, description="format in which clients send their model, unless models.clients names one"
    )
    upload_of: UploadOf = Field(
        "model", description="what is sent in fewer bits: the weights, or their difference from the received ones"
    )
    error_feedback: bool = Field(
        False, description="add what an upload's fewer bits lost to the client's next upload; clients remember it"
    )

    @model_validator(mode="after")
    def _one_measure_of_work(self) -> LocalSettings:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps, and not both")
        if self.stragglers and self.epochs is None:
            raise ValueError("stragglers draw their epochs: set epochs, not steps")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f'adam has no momentum = {self.momentum:g}: leave it out, or set optimizer = "sgd"')
        if any(not 0 < m < 1 for m in self.milestones):
            raise ValueError("milestones are fractions of the rounds, between 0 and 1")
        return self

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate in `round` (from 1) of `rounds`."""
        falls = sum(round > m * rounds + 1e-9 for m in self.milestones)  # 0.29 * 100 is a little less than 29
        return self.lr * self.gamma**falls
