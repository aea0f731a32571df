"""Attention backends, one file each; only the registry names them."""
