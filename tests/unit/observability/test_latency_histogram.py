"""The histogram of many values at once, beside the library's own."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from legato.observability.latency_histogram import LatencyHistogram

BOUNDS = (0.001, 0.5, 1.0)


def shown(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def test_it_shows_what_the_librarys_own_shows_bounds_included() -> None:
    values = (0.0, 0.001, 0.0011, 0.25, 0.5, 1.0, 1.5, 40.0)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = LatencyHistogram("seconds", "A text.", BOUNDS)
    ours.register(histogram)
    own = Histogram("seconds", "A text.", buckets=BOUNDS, registry=theirs)
    assert shown(ours) == shown(theirs)
    histogram.observe(values[:3])
    histogram.observe(values[3:])
    for value in values:
        own.observe(value)
    assert shown(ours) == shown(theirs)
