"""Logits -> tokens, as device operations over a batch."""
