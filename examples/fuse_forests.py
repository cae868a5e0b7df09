"""Fuse three random forests, each trained on seven of the ten digits, into one net that knows all ten."""

import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from fedfuse import fuse, models

torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
known = [y[:600] // 3 != site for site in range(3)]  # no 0, 1, 2 at the first
forests = [RandomForestClassifier(random_state=0).fit(x[:600][k], y[:600][k]) for k in known]
student = models.build("mlp:128", classes=10, shape=(64,))
fused = fuse(forests, student, pool=x[600:1300])

print([f"{forest.score(x[1300:], y[1300:]):.3f}" for forest in forests])
print((fused.model(torch.tensor(x[1300:]).float()).argmax(1).numpy() == y[1300:]).mean())
