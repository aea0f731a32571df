"""Drafters: what proposes the tokens that a round of speculative decoding verifies. One file each, and a registry."""
