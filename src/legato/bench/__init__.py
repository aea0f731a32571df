"""Measurements a user can repeat: latency and its peers."""
