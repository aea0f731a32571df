"""Timing calls inside a CUDA graph."""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import statistics
from collections.abc import Callable

import torch

REPLAYS = 20


def time_calls(calls: list[Callable[[], None]]) -> float:
    """Return microseconds per call: all calls once in one graph, the median of its replays."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)
