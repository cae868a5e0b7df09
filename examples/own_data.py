"""Your own data: a function that returns ((x_train, y_train), (x_test, y_test)). Its arguments are settings.

In the project's folder: `fedfuse run examples/own_data.toml`.
"""

import numpy as np
from numpy.typing import NDArray

Split = tuple[NDArray[np.float32], NDArray[np.int64]]


def moons(*, examples: int = 1200, noise: float = 0.15, seed: int = 0) -> tuple[Split, Split]:
    """Two interleaved half circles: float features of shape (2,), two classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=examples)
    angle = rng.uniform(0, np.pi, size=examples)
    x = np.stack((np.cos(angle) + y * (1 - 2 * np.cos(angle)), np.sin(angle) + y * (0.5 - 2 * np.sin(angle))), 1)
    x = (x + rng.normal(0, noise, x.shape)).astype(np.float32)
    cut = examples * 3 // 4
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])
