"""Patterns of JSON strings, made to match what may stand between the quotes. Owns which characters may.

The grammar library takes a pattern for the string as it is written, not for what it means: a dot would match the quote
that ends it. Raises ValueError for what can only match a character that JSON escapes. Sets are written by what they
hold: the library takes any bytes for what a negated one leaves.
"""

from collections.abc import Sequence

_ESCAPED = ((0, 0x1F), (ord('"'),) * 2, (ord("\\"),) * 2, (0xD800, 0xDFFF))
"""What JSON strings hold only escaped, and what UTF-8 has no bytes for."""
_LAST = 0x10FFFF
_CLASSES = {
    "d": ((ord("0"), ord("9")),),
    "w": ((ord("0"), ord("9")), (ord("A"), ord("Z")), (ord("_"),) * 2, (ord("a"), ord("z"))),
}
_LITERALS = ".-/()[]{}+*?^$|:,#@&%=<>!~_' "

_Ranges = Sequence[tuple[int, ...]]
"""(first, last) of each run of characters."""


def written_out(pattern: str) -> str:
    """Return ``pattern`` without a match that JSON would have to escape."""
    out, place = [], 0
    while place < len(pattern):
        part, place = _element(pattern, place)
        out.append(part)
    return "".join(out)


def of_length(least: int, most: int | None) -> str:
    """Return the pattern of strings of ``least`` to ``most`` characters."""
    return f"^{ANY}{{{least},{'' if most is None else most}}}$"


def _element(pattern: str, place: int) -> tuple[str, int]:
    """Return the next part of the pattern, and where the one after it begins."""
    character = pattern[place]
    if character == ".":
        return ANY, place + 1
    if character == "[":
        return _brackets(pattern, place)
    if character == "\\":
        return _escape(pattern, place), place + 2
    _check(character, character)
    return character, place + 1


def _brackets(pattern: str, place: int) -> tuple[str, int]:
    """Return a set of characters, a negated one by those that it leaves."""
    negated = pattern.startswith("[^", place)
    start = place = place + 1 + negated
    ranges: list[tuple[int, ...]] = []
    while place < len(pattern) and (pattern[place] != "]" or place == start):
        if pattern[place] == "\\" and pattern[place + 1 : place + 2] in _CLASSES:
            ranges += _CLASSES[pattern[place + 1]]
            place += 2
            continue
        first, place = _literal(pattern, place)
        last = first
        if pattern[place : place + 1] == "-" and pattern[place + 1 : place + 2] not in ("", "]"):
            last, place = _literal(pattern, place + 1)
        if not negated:
            _check(first, last)
        ranges.append((ord(first), ord(last)))
    if place >= len(pattern):
        raise ValueError("a set of characters is not closed")
    return _written(_others((*ranges, *_ESCAPED)) if negated else ranges), place + 1


def _literal(pattern: str, place: int) -> tuple[str, int]:
    """Return one character of a set, and where the next part begins."""
    if pattern[place] == "\\":
        return _escape(pattern, place)[1], place + 2
    return pattern[place], place + 1


def _escape(pattern: str, place: int) -> str:
    escape = pattern[place : place + 2]
    if len(escape) < 2 or not (escape[1] in _CLASSES or escape[1] in _LITERALS):
        raise ValueError(f"{escape!r} may match what JSON escapes")
    return escape


def _check(first: str, last: str) -> None:
    """Raise ValueError where JSON escapes a character of this range."""
    if any(ord(first) <= most and least <= ord(last) for least, most in _ESCAPED):
        shown = first if first == last else f"{first}-{last}"
        raise ValueError(f"{shown!r} matches what JSON escapes")


def _others(ranges: _Ranges) -> list[tuple[int, ...]]:
    """Return the runs of characters between ``ranges``."""
    others: list[tuple[int, ...]] = []
    first = 0
    for least, most in sorted(ranges):
        if least > first:
            others.append((first, least - 1))
        first = max(first, most + 1)
    if first <= _LAST:
        others.append((first, _LAST))
    return others


def _written(ranges: _Ranges) -> str:
    if not ranges:
        raise ValueError("a set of characters is empty")
    return "[" + "".join(_character(first) + "-" + _character(last) for first, last in ranges) + "]"


def _character(number: int) -> str:
    text = chr(number)
    return f"\\{text}" if text in "[]^-" else text


ANY = _written(_others(_ESCAPED))
"""Any character that is written as it is."""
