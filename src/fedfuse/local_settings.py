"""How clients train, with any algorithm: the experiment's `[local]` section."""

from __future__ import annotations

from math import ceil, cos, pi
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from fedfuse.packing import FULL, Upload, UploadOf
from fedfuse.signature import ONLY_NUMBERS


class LocalSettings(BaseModel):
    """Local training: its length in epochs or steps, its optimizer, its learning rate over rounds and steps."""

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
    schedule: Literal["constant", "linear", "cosine", "exponential"] = Field(
        "constant", description="the learning rate over the steps of one round"
    )
    warmup: float = Field(0.0, ge=0, le=1, description="fraction of a round's steps in which the learning rate rises")
    decay: float | None = Field(None, gt=0, lt=1, description="factor on the learning rate at each step: exponential")
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
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        if (self.schedule == "exponential") != (self.decay is not None):
            raise ValueError('schedule = "exponential" and decay, such as 0.99, need each other: give both or neither')
        if self.schedule != "constant" and self.warmup == 1:
            raise ValueError(f'warmup = 1 leaves no step for schedule = "{self.schedule}": lower warmup')
        if self.steps == 1 and not self.constant:
            raise ValueError("one step has one learning rate: leave schedule and warmup out, or raise steps")

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate in `round` (from 1) of `rounds`."""
        falls = sum(round > m * rounds + 1e-9 for m in self.milestones)  # 0.29 * 100 is a little less than 29
        return self.lr * self.gamma**falls

    @property
    def constant(self) -> bool:
        """Whether all steps of a round have the same learning rate."""
        return self.schedule == "constant" and self.warmup == 0

    def factor(self, step: int, steps: int) -> float:
        """The factor on a round's learning rate at `step` (from 0) of `steps`.

        It rises linearly to 1 in the first `warmup` of the steps, and falls from 1 in the others: towards 0 after the
        last step, on a line or a cosine, or to the fraction `decay` at each step.
        """
        rising = ceil(self.warmup * steps - 1e-9)  # 0.07 * 100 is a little more than 7
        if step < rising:
            return (step + 1) / rising
        if self.decay is not None:
            return float(self.decay ** (step - rising))
        if self.schedule == "constant":
            return 1.0
        past = (step - rising) / (steps - rising)
        return 1 - past if self.schedule == "linear" else (1 + cos(pi * past)) / 2
