"""The prompts of a run. Owns the data sets by name, their lengths and the order they are drawn in; sends nothing."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from legato.bench.serving.dataset_files import FILES, Entry, read_entries
from legato.bench.serving.prompt import Prompt
from legato.bench.serving.random_text import RandomTokens, RandomWords, Vocabulary
from legato.errors import ConfigError

DATASETS = ("random", "prefix-repetition", *FILES)
DEFAULT_OUTPUT_LEN = 128
FEWEST_TOKENS, LONGEST_PROMPT, LONGEST_CONVERSATION = 4, 1024, 2048
"""Of ``sharegpt``'s conversations, what is passed over where the vocabulary is known: the usual limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """Which prompts, and of what lengths in tokens."""

    name: str = "random"
    path: Path | None = None
    input_len: int = 1024
    """``random``: of a prompt, its common prefix not counted."""
    output_len: int | None = None
    """Of each answer; None: the data set's own, or 128."""
    range_ratio: float = 0.0
    """``random``: lengths are drawn evenly from so much less to so much more; 0: all alike."""
    prefix_len: int = 0
    """``random``: of a prefix that all prompts share; ``prefix-repetition``: of each of several."""
    suffix_len: int = 256
    num_prefixes: int = 10
    """``prefix-repetition``: how many prefixes, each asked about equally often."""
    category: str | None = None
    """``mt-bench``, ``spec-bench``: only questions of this one."""
    as_ids: bool = True
    """``random``, ``prefix-repetition``: token ids rather than words."""


class Dataset:
    """A data set, read once; every run draws from it anew.

    ``vocabulary`` is called where lengths are counted in tokens or ids are drawn: it may take a while, or raise.
    """

    def __init__(self, spec: DatasetSpec, vocabulary: Callable[[], Vocabulary]) -> None:
        self._spec = spec
        self._vocabulary_maker = vocabulary
        self._entries = [] if spec.name not in FILES else self._read()

    def prompts(self, seed: str) -> Iterator[Prompt]:
        """Return prompts without end, the same for the same seed; a file's are shuffled, and repeated."""
        generator = random.Random(seed)
        if self._spec.name == "random":
            return self._random(generator)
        if self._spec.name == "prefix-repetition":
            return self._prefix_repetition(generator)
        return self._of_file(generator)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self._vocabulary_maker()

    @cached_property
    def _source(self) -> RandomTokens | RandomWords:
        return RandomTokens(self._vocabulary) if self._spec.as_ids else RandomWords(self._vocabulary)

    def _random(self, generator: random.Random) -> Iterator[Prompt]:
        spec = self._spec
        prefix = self._source.draw(generator, spec.prefix_len)
        while True:
            length = _around(spec.input_len, spec.range_ratio, generator)
            output_len = _around(spec.output_len or DEFAULT_OUTPUT_LEN, spec.range_ratio, generator)
            yield Prompt(content=_joined(prefix, self._source.draw(generator, length)), output_len=output_len)

    def _prefix_repetition(self, generator: random.Random) -> Iterator[Prompt]:
        spec = self._spec
        prefixes = [self._source.draw(generator, spec.prefix_len) for _ in range(spec.num_prefixes)]
        output_len = spec.output_len or DEFAULT_OUTPUT_LEN
        while True:
            for prefix in generator.sample(prefixes, len(prefixes)):
                content = _joined(prefix, self._source.draw(generator, spec.suffix_len))
                yield Prompt(content=content, output_len=output_len)

    def _of_file(self, generator: random.Random) -> Iterator[Prompt]:
        order = generator.sample(self._entries, len(self._entries))
        kept = False
        for index, entry in enumerate(itertools.cycle(order)):
            if index == len(order) and not kept:
                raise ConfigError("every conversation of the file is too short or too long", {"requested": self._what})
            if (prompt := self._prompt(entry)) is not None:
                kept = True
                yield prompt

    def _prompt(self, entry: Entry) -> Prompt | None:
        """Return what a file's entry asks; None where its length is out of the ordinary."""
        length = self._spec.output_len or entry.output_len
        if length is not None or entry.answer is None:
            return Prompt(content=entry.content, output_len=length or DEFAULT_OUTPUT_LEN)
        assert isinstance(entry.content, str)
        num_prompt, num_answer = (
            len(self._vocabulary.encode(text, add_special_tokens=False)) for text in (entry.content, entry.answer)
        )
        is_usual = min(num_prompt, num_answer) >= FEWEST_TOKENS and num_prompt <= LONGEST_PROMPT
        if not is_usual or num_prompt + num_answer > LONGEST_CONVERSATION:
            return None
        return Prompt(content=entry.content, output_len=num_answer)

    def _read(self) -> list[Entry]:
        if self._spec.path is None:
            raise ConfigError(
                "this data set is read from a file", {"requested": self._what, "options": "--dataset-path"}
            )
        entries = read_entries(self._spec.name, self._spec.path)
        chosen = [entry for entry in entries if self._spec.category in (None, entry.category)]
        if not chosen:
            found = ", ".join(sorted({entry.category for entry in entries if entry.category})) or "none"
            details = {"requested": f"--category {self._spec.category}", "options": found}
            raise ConfigError("no question has this category", details)
        return chosen

    @property
    def _what(self) -> str:
        return f"--dataset {self._spec.name}"


def _around(length: int, ratio: float, generator: random.Random) -> int:
    """Return a length from ``length * (1 - ratio)`` to ``length * (1 + ratio)``, at least 1."""
    return max(1, generator.randint(round(length * (1 - ratio)), round(length * (1 + ratio))))


def _joined(prefix: str | tuple[int, ...], rest: str | tuple[int, ...]) -> str | tuple[int, ...]:
    return prefix + rest  # type: ignore[operator]
