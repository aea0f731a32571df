"""Attention: the backend protocol, support levels, the registry and selection."""
