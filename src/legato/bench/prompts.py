"""The prompts of measurements. Owns that no two are alike, so that a prefix cache finds nothing."""

import random
from collections.abc import Iterator


def fresh_prompts(seed: int | str, vocab_size: int, length: int) -> Iterator[tuple[int, ...]]:
    """Yield random prompts of ``length`` token ids, the same ones for the same seed."""
    generator = random.Random(seed)
    while True:
        yield tuple(generator.randrange(vocab_size) for _ in range(length))
