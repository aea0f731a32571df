"""Decoder-only language models, one file per family, and the table that names them."""
