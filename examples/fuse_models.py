"""Fuse three models of different architectures, each trained on few examples of three digits, on unlabeled data."""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from fedfuse import fuse, models
from fedfuse.fusion import AdamCosine

torch.manual_seed(0)
names = ("mlp:128", "lenet", "convnet", "mlp:64-32")

x, y = torch.tensor(load_digits().images).float()[:, None] / 8 - 1, torch.tensor(load_digits().target)
*teachers, student = (models.build(name, classes=10, shape=(1, 8, 8)) for name in names)
for number, net in enumerate(teachers):
    included = (y[:600] // 3 != number) | (torch.rand(600) < 0.05)  # of 0, 1, 2 the first teacher sees only 5 %
    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    for batch in torch.multinomial(included.float(), 300 * 64, replacement=True).view(300, 64):
        adam.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        adam.step()
fused = fuse(teachers, student, pool=x[600:1300], distiller=AdamCosine(steps=600))

for name, net in zip(names, (*teachers, fused.model), strict=True):
    print(f"{name:10} {(net(x[1300:]).argmax(1) == y[1300:]).double().mean():.3f}")
