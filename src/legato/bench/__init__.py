"""Measurements a user can repeat: latency, throughput, start-up and graph policies, beside their peers."""
