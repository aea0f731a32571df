"""The sizes that graphs are captured at. Owns the bound on padding: at most 12.5 % above 16, none falls off the end."""

_SMALL = (1, 2, 4, 8, 16)


def ladder(limit: int) -> tuple[int, ...]:
    """Return ascending sizes that end with ``limit``, powers of two among them, and as few as the bound allows.

    Above 16 every count ``n <= limit`` has a size of at most ``1.125 * n``.
    """
    sizes = [size for size in _SMALL if size < limit]
    octave = _SMALL[-1]
    while octave < limit:
        sizes += [size for size in _octave(octave) if size < limit]
        octave *= 2
    return (*sizes, limit)


def _octave(below: int) -> list[int]:
    """Return sizes above ``below`` up to its double: each as far above the last as the count after that one allows."""
    sizes, size = [], 2 * below
    while size > below:
        sizes.append(size)
        size = -(-8 * size // 9) - 1
    return sizes[::-1]


def chosen_sizes(requested: tuple[int, ...] | None, limit: int) -> tuple[int, ...]:
    """Return the user's sizes up to ``limit``, or the ladder where none were given."""
    if requested is None:
        return ladder(limit)
    return tuple(sorted({size for size in requested if size <= limit}))


def context_lengths(max_model_len: int) -> tuple[int, ...]:
    """Return sequence lengths, a power of two each and the longest, at which backends are asked for their integers."""
    powers = [1 << exponent for exponent in range(max_model_len.bit_length()) if 1 << exponent < max_model_len]
    return (*powers, max_model_len)
