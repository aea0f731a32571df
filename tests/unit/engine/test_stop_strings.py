"""Stop strings are found wherever the text is cut into pieces, and nothing is given out that one could claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.engine.stop_strings import StopStrings

text = st.text(alphabet="abc", max_size=30)
stops = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3)


def naive(whole: str, stops: list[str]) -> tuple[str, str | None]:
    """Return the text before the first stop string that is complete when characters come one by one."""
    for end in range(1, len(whole) + 1):
        complete = [(whole[:end].rfind(stop), stop) for stop in stops if whole[:end].endswith(stop)]
        if complete:
            start, stop = min(complete)
            return whole[:start], stop
    return whole, None


@given(text, stops)
def test_characters_one_by_one_end_at_the_first_complete_stop_string(whole: str, stops: list[str]) -> None:
    matcher, given_out = StopStrings(stops), ""
    expected, expected_stop = naive(whole, stops)
    for character in whole:
        released, stop = matcher.add(character)
        given_out += released
        assert expected.startswith(given_out), "text was given out that belongs to a stop string"
        if stop is not None:
            assert (given_out, stop) == (expected, expected_stop)
            return
    assert (given_out + matcher.finish(), None) == (expected, expected_stop)


@given(st.lists(st.text(alphabet="abc", max_size=6), max_size=8), stops)
def test_pieces_of_any_length_leave_no_stop_string_in_the_text(pieces: list[str], stops: list[str]) -> None:
    matcher, given_out, matched = StopStrings(stops), "", None
    for piece in pieces:
        released, matched = matcher.add(piece)
        given_out += released
        if matched is not None:
            break
    else:
        given_out += matcher.finish()
        assert given_out == "".join(pieces)
    assert not any(stop in given_out for stop in stops)
    if matched is not None:
        assert "".join(pieces).startswith(given_out + matched)


@pytest.mark.parametrize(("piece", "released"), [("END", ""), ("an E", "an "), ("EEN", "E"), ("ENX", "ENX"), ("", "")])
def test_only_the_beginning_of_a_stop_string_is_held_back(piece: str, released: str) -> None:
    assert StopStrings(["END."]).add(piece) == (released, None)


def test_a_stop_string_completed_while_unarmed_is_text() -> None:
    matcher = StopStrings(["ab"])
    assert matcher.add("xab", armed=False) == ("xab", None)
    assert matcher.add("a", armed=False) == ("", None)
    assert matcher.add("b") == ("", "ab")
