"""The commands, a module for each group. `cli.py` puts them together."""
