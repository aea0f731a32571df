"""Dataclass fields become command-line options, and typed options become the dataclass again."""

from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from legato.cli.dataclass_options import comma_separated_integers, option_parameters, takes_options
from legato.config.options import EngineOptions, option
from legato.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One field of every kind."""

    name: str = option("smollm2", "A name.", panel="Model")
    color: str = option("red", "A colour.", choices=("red", "green"))
    length: int | None = option(None, "A length.")
    share: float = option(0.5, "A share.")
    sizes: tuple[int, ...] | None = option(None, "Sizes.", metavar="N,N,…")
    widths: tuple[int, ...] = option((1, 2), "Widths.")
    words: tuple[str, ...] = option((), "Words.")
    tones: tuple[str, ...] = option((), "Tones.", choices=("low", "high"))
    caching: bool = option(True, "Whether to cache.")
    settings: str | None = option(None, "Settings.", aliases=("-cc",))


def parse(*arguments: str) -> Options:
    """Run a command that takes the options, and return what it was given."""
    seen: list[Options] = []

    def command(*, options: Options) -> None:
        seen.append(options)

    app = typer.Typer(context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
    app.command()(takes_options(command))
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    if result.exit_code:
        raise ConfigError(result.output)
    return seen[0]


def test_nothing_typed_gives_the_defaults() -> None:
    assert parse() == Options()


def test_every_kind_of_field_can_be_typed() -> None:
    typed = parse(
        "--name=m", "--color", "green", "--length=3", "--share=0.25", "--sizes=1,2", "--widths", "4", "--no-caching"
    )
    assert typed == Options(name="m", color="green", length=3, share=0.25, sizes=(1, 2), widths=(4,), caching=False)


def test_strings_are_repeated_since_they_may_hold_commas() -> None:
    assert parse("--words", "a,b", "--words", "c").words == ("a,b", "c")


def test_each_of_several_choices_is_checked() -> None:
    assert parse("--tones", "low", "--tones", "high").tones == ("low", "high")
    with pytest.raises(ConfigError, match=r"(?s)flat.*low.*high"):
        parse("--tones", "low", "--tones", "flat")


def test_an_alias_of_two_letters_is_one_option() -> None:
    assert parse("-cc", '{"cudagraph_mode": "FULL"}').settings == '{"cudagraph_mode": "FULL"}'


def test_underscores_may_stand_for_dashes() -> None:
    assert parse("--no_caching").caching is False


def test_a_wrong_choice_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match=r"(?s)blue.*red.*green"):
        parse("--color", "blue")


@pytest.mark.parametrize("text", ["1,x", "", "1,,2", "1.5"])
def test_a_list_that_is_not_of_integers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="integers between commas"):
        comma_separated_integers(text)


def test_every_engine_option_has_a_panel_a_help_text_and_a_default() -> None:
    infos = [parameter.annotation.__metadata__[0] for parameter in option_parameters(EngineOptions)]
    assert all(info.rich_help_panel and info.help for info in infos)
    assert {parameter.name for parameter in option_parameters(EngineOptions)} == set(EngineOptions.__dataclass_fields__)


def test_two_groups_with_the_same_field_cannot_be_one_command() -> None:
    def command(*, first: Options, second: Options) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="duplicate parameter name"):
        takes_options(command)
