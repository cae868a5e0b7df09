from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fedfuse import rng
from fedfuse.data.examples import Examples
from fedfuse.generators.net import Encoder, Flow, Generator

def train(images, *, latent=16, width=32, steps=2000, batch=128, lr=2e-3, seed=0, report=lambda *a: None, flow_steps=None):
    shape = images.shape
    with rng.ambient(rng.generator(seed, "generator init")):
        net = Generator(latent, shape, width); enc = Encoder(latent, shape, width)
    net = net.to(memory_format=torch.channels_last); enc = enc.to(memory_format=torch.channels_last)
    draws = rng.generator(seed, "generator batches"); noise = rng.generator(seed, "generator noise")
    params = [*net.decoder.parameters(), *enc.parameters()]
    opt = Adam(params, lr=lr); sched = OneCycleLR(opt, lr, total_steps=steps)
    pix = images.x[0].numel()
    hist = []
    for s in range(steps):
        rows = torch.randint(len(images), (batch,), generator=draws)
        x = images.x.index_select(0, rows).to(torch.float32, memory_format=torch.channels_last).div_(255)
        m, lv = enc(x)
        z = m + (lv/2).exp()*torch.randn(m.shape, generator=noise)
        r = net.decoder(z)
        mse = (r-x).square().mean()
        kl = (m.square()+lv.exp()-1-lv).sum(1).mean()/2
        loss = pix/2*(mse+1e-5).log()+kl
        opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(params, 100.0); opt.step(); sched.step()
        hist.append((loss.item(), mse.item(), kl.item()))
    with torch.no_grad():
        enc.eval()
        ms, lvs = zip(*(enc(c.to(torch.float32).div_(255)) for c in torch.split(images.x[:10000], 1024)))
        ms, lvs = torch.cat(ms), torch.cat(lvs)
    fs = steps if flow_steps is None else flow_steps
    if fs:
        opt = Adam(net.flow.parameters(), lr=lr); sched = OneCycleLR(opt, lr, total_steps=fs)
    fl=[]
    for s in range(fs):
        rows = torch.randint(len(ms), (256,), generator=draws)
        m = ms[rows]
        z1 = m + (lvs[rows]/2).exp()*torch.randn(m.shape, generator=noise)
        z0 = torch.randn(m.shape, generator=noise)
        t = torch.rand(len(m),1, generator=noise)
        loss = (net.flow.velocity(z0+t*(z1-z0), t)-(z1-z0)).square().mean()
        opt.zero_grad(); loss.backward(); opt.step(); sched.step(); fl.append(loss.item())
    return net, enc, hist, fl, ms, lvs
