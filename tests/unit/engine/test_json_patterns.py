"""Patterns of JSON strings are written so that they match what stands between the quotes, and nothing else."""

import re

import pytest

from legato.engine.json_patterns import of_length, written_out

PLAIN = ["a", "Z", "7", "é", "~", "[", "]", "-", "\u20ac", "\U0001f600", "_"]
ESCAPED = ['"', "\\", "\n", "\x00", "\x1f"]


@pytest.mark.parametrize(
    "pattern", [".", "[^a]", "[^a-f]", r"[^\w]", r"[^\]\-]", r"[\w-]", "[a-cx]", r"\d", r"\w+", "(a|b)?", "]"]
)
def test_what_is_matched_is_as_before_but_for_what_json_escapes(pattern: str) -> None:
    written = written_out(pattern)
    flags = re.ASCII | re.DOTALL
    for character in PLAIN:
        assert bool(re.fullmatch(written, character, flags)) == bool(re.fullmatch(pattern, character, flags))
    assert not any(re.fullmatch(written, character, flags) for character in ESCAPED)


@pytest.mark.parametrize("pattern", ['"', "[ -~]", r"\S", r"\s", r"\\", r"[\s]", "[a", "\n", r"\u0041", "\\"])
def test_what_may_match_an_escaped_character_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"escapes|closed"):
        written_out(pattern)


def test_lengths_count_characters() -> None:
    assert re.fullmatch(of_length(1, 2), "é\U0001f600")
    assert not re.fullmatch(of_length(1, 2), "abc")
    assert not re.fullmatch(of_length(1, None), "")
    assert re.fullmatch(of_length(0, None), "abc")
