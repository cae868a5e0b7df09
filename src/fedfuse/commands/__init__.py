"""The commands, one module per group. `app.py` assembles them."""
