"""The commands, one module per group. `cli.py` assembles them."""
