"""Draft an experiment for data that nobody has described yet: `fedfuse init`."""
