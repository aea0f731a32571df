"""Requests -> ScheduledBatch: continuous batching, chunked prefill, preemption. Pure."""
