"""The sizes that graphs are captured at. Owns the bound on padding: at most 12.5 % above 16, none falls off the end."""

_SMALL = (1, 2, 4, 8, 16)
_MAX_PADDING = 1 / 8
_ALIGNMENT = 8
"""Larger sizes are multiples of this: matrix kernels waste less."""


def ladder(limit: int) -> tuple[int, ...]:
    """Return ascending sizes that end with ``limit``.

    Above 16 every count ``n <= limit`` has a size of at most ``1.125 * n``.
    """
    sizes = [size for size in _SMALL if size < limit]
    while not sizes or sizes[-1] < limit:
        smallest = sizes[-1] + 1 if sizes else 1
        largest = int(smallest * (1 + _MAX_PADDING)) if smallest > _SMALL[-1] else smallest
        aligned = largest // _ALIGNMENT * _ALIGNMENT
        sizes.append(min(limit, aligned if aligned >= smallest else largest))
    return tuple(sizes)


def chosen_sizes(requested: tuple[int, ...] | None, limit: int) -> tuple[int, ...]:
    """Return the user's sizes up to ``limit``, or the ladder where none were given."""
    if requested is None:
        return ladder(limit)
    return tuple(sorted({size for size in requested if size <= limit}))


def context_lengths(max_model_len: int) -> tuple[int, ...]:
    """Return sequence lengths, a power of two each and the longest, at which backends are asked for their integers."""
    powers = [1 << exponent for exponent in range(max_model_len.bit_length()) if 1 << exponent < max_model_len]
    return (*powers, max_model_len)
