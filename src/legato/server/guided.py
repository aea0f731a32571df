"""Guides as request bodies spell them: OpenAI's ``response_format``, and vLLM's fields. Owns the spellings."""

from typing import Any, cast

from legato.errors import RequestError
from legato.flow.guide import Guide
from legato.server.requests import GenerationBody, ResponseFormat, StructuredOutputs


def guide_of(body: GenerationBody) -> Guide | None:
    """Return the form that the output must have, None where any will do; raises RequestError, naming the field."""
    guides = [
        *_of_response_format(body.response_format),
        *_of_structured_outputs(body.structured_outputs),
        *_guides("guided_{}", body.guided_json, body.guided_regex, body.guided_choice, body.guided_grammar),
    ]
    if len(guides) > 1:
        details = {"requested": " and ".join(guide.param for guide in guides), "options": "one of them"}
        raise RequestError("an output has one form", details, param=guides[1].param)
    return guides[0] if guides else None


def _of_response_format(form: ResponseFormat | None) -> list[Guide]:
    param = "response_format"
    if form is None or form.type == "text":
        return []
    if form.type == "json_object":
        return [Guide.json_object(param=param)]
    if form.json_schema is None or not isinstance(form.json_schema.schema_, (dict, bool)):
        details = {"limit": '{"type": "json_schema", "json_schema": {"name": …, "schema": {…}}}'}
        raise RequestError("response_format has no schema", details, param=param)
    return [Guide.json_schema(cast("dict[str, Any] | bool", form.json_schema.schema_), param=param)]


def _of_structured_outputs(outputs: StructuredOutputs | None) -> list[Guide]:
    if outputs is None:
        return []
    param, compact = "structured_outputs", bool(outputs.disable_any_whitespace)
    guides = _guides(param, outputs.json_, outputs.regex, outputs.choice, outputs.grammar, compact=compact)
    if outputs.json_object:
        guides.append(Guide.json_object(compact=compact, param=param))
    return guides


def _guides(
    field: str,
    schema: str | dict[str, Any] | None,
    regex: str | None,
    choice: list[str] | None,
    grammar: str | None,
    *,
    compact: bool = False,
) -> list[Guide]:
    """Return a guide for each that is given; ``field`` names it, with a place for what it is."""
    guides = []
    if schema is not None:
        guides.append(Guide.json_schema(schema, compact=compact, param=field.format("json")))
    if regex is not None:
        guides.append(Guide.regex(regex, param=field.format("regex")))
    if choice is not None:
        guides.append(Guide.choice(choice, param=field.format("choice")))
    if grammar is not None:
        guides.append(Guide.grammar(grammar, param=field.format("grammar")))
    return guides
