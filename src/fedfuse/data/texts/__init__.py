"""Texts: how they are stored, the tokenizer that encodes them, and their lengths."""
