"""Generators of unlabeled images for a pool: a small net, its file and its trainer."""

from fedfuse.data.generators.file import load_generator, save_generator
from fedfuse.data.generators.net import Generator

__all__ = ["Generator", "load_generator", "save_generator"]
