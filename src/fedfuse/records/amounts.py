"""Amounts as text: parameters, bytes, seconds, rounds."""

from __future__ import annotations

from rich.filesize import decimal

PREFIXES = (" k", " M", " G", " T")


def count(number: float) -> str:
    """Return a count of things with three digits: 742, 6.57 k, 368 k, 19.3 M."""
    text, unit = f"{number:.0f}", ""
    for power, prefix in enumerate(PREFIXES, 1):
        if abs(float(text)) < 1000:
            break
        value = number / 1000**power
        text, unit = f"{value:#.3g}".removesuffix("."), prefix
    return f"{text}{unit}"


def mean_count(mean: float) -> str:
    """Return a mean of whole numbers: 7 if it is whole, else 7.3."""
    return f"{mean:.1f}".removesuffix(".0")


def size(n: float) -> str:
    """Return bytes as 2.1 MB."""
    return decimal(round(n), precision=1)


def duration(seconds: float) -> str:
    """Return seconds as 12.3 s, 4 min 5 s, 2 h 10 min or 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
