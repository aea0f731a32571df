"""Chat templates: what they may use, what they may not do, and whose fault an error is."""

import pytest

from legato.errors import ModelError, RequestError
from legato.loading.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}]


def render(text: str, messages: list[dict] = MESSAGES, **variables: object) -> str:
    template = ChatTemplate(text, {"bos_token": "<s>", "eos_token": "</s>"})
    return template.render(messages, add_generation_prompt=True, **variables)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ bos_token }}{{ messages[0]['role'] }}{{ eos_token }}", "<s>user</s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% for m in messages %}{% if loop.first %}{% break %}{% endif %}x{% endfor %}", ""),
        ("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c", "abhic"),
        ("{% if tools %}tools{% else %}none{% endif %}", "none"),
        ("  {% if true %}\nline\n  {% endif %}\n", "line\n"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_templates_may_use_what_transformers_offers(text: str, expected: str) -> None:
    assert render(text) == expected


def test_variables_of_the_request_reach_the_template() -> None:
    assert render("{% if enable_thinking %}think{% endif %}", enable_thinking=True) == "think"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.missing.field }}", "missing"),
        ("{{ 1 + messages[0].content }}", "TypeError"),
    ],
)
def test_what_the_template_refuses_is_the_requests_error(text: str, found: str) -> None:
    with pytest.raises(RequestError, match=found) as error:
        render(text)
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    "text", ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{{ messages.clear() }}"]
)
def test_a_template_cannot_leave_its_sandbox(text: str) -> None:
    with pytest.raises(RequestError, match="SecurityError"):
        render(text, [dict(message) for message in MESSAGES])


def test_a_template_that_is_no_jinja_is_the_models_error() -> None:
    with pytest.raises(ModelError, match="line 1"):
        ChatTemplate("{% if %}", {})
