"""A Prometheus histogram that takes the values of an output at once. Owns its counts; knows not what they measure.

The library's own takes a lock and looks through the buckets for each value: a millisecond for the tokens of one output,
in which every other stream would wait.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class LatencyHistogram(Collector):
    """Counts of seconds by bucket. To be used from one thread."""

    def __init__(self, name: str, text: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._bounds = (*buckets, float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, seconds: Iterable[float]) -> None:
        """Take in values; a bucket holds those up to its bound, the bound included."""
        for value in seconds:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def collect(self) -> Iterator[Metric]:
        """Yield the one metric."""
        buckets = zip(map(floatToGoString, self._bounds), map(float, accumulate(self._counts)), strict=True)
        yield HistogramMetricFamily(self._name, self._text, buckets=list(buckets), sum_value=self._sum)
