"""Strategies for requests that a server may be sent: plausible ones, wild ones, and both within one body."""

import json
import math
from urllib.parse import quote

from hypothesis import strategies as st

from legato.server.extras import NEUTRAL, NO_BEARING
from legato.server.requests import ChatBody, CompletionBody, DetokenizeBody, GenerationBody, TokenizeBody
from legato.server.responses_api.body import ResponsesBody

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 40) | st.floats() | st.sampled_from([1e308, -0.0, 0.5, 2**63])
TEXTS = st.text(max_size=5) | st.sampled_from(["", "\x00", "\ud83d", "<|end|>", "é" * 3, "a" * 300, "Infinity"])
ROLES = st.sampled_from(["user", "system", "assistant", "tool", "developer"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("12"), inner, max_size=3),
    max_leaves=5,
)
TOKEN_IDS = st.lists(st.integers(0, 299), min_size=1, max_size=4)
WORDS = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3)
TOOL_CALLS = st.fixed_dictionaries(
    {"id": TEXTS, "type": st.just("function"), "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS})}
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES, "content": TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}))},
        optional={"name": VALUES, "tool_calls": st.lists(TOOL_CALLS, max_size=2) | VALUES, "tool_call_id": TEXTS},
    ),
    min_size=1,
    max_size=3,
)
SCHEMAS = st.recursive(
    st.sampled_from([{}, True, {"type": "integer", "minimum": 3}, {"enum": ["a", 1, None]}, {"const": "\ud83d"}])
    | st.builds(lambda least: {"type": "string", "minLength": least}, NUMBERS)
    | st.builds(
        lambda pattern: {"type": "string", "pattern": pattern}, TEXTS | st.sampled_from(["^a+$", "(", "a{9,}"])
    ),
    lambda inner: (
        st.builds(lambda one: {"type": "array", "items": one, "maxItems": 2}, inner)
        | st.builds(lambda some: {"anyOf": some}, st.lists(inner, max_size=3))
        | st.builds(lambda one: {"type": "object", "properties": {"a": one}, "required": ["a"]}, inner)
        | st.builds(lambda one: {"$defs": {"a": one}, "$ref": "#/$defs/a"}, inner)
    ),
    max_leaves=4,
)
REGEXES = st.sampled_from(["a|b", "[0-9]{2,4}", "(a*)*b", "(", "\\", ".{0,99999}", "(?=a)", "\\u0000"]) | TEXTS
GRAMMARS = st.sampled_from(['root ::= "a" | root root', "root ::= x\nx ::= root", "root ::=", 'start ::= "a"']) | TEXTS
FORMATS = st.builds(lambda schema: {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, SCHEMAS)
TEXT_FORMATS = st.builds(lambda schema: {"type": "json_schema", "name": "a", "schema": schema}, SCHEMAS) | (
    st.sampled_from([{"type": "json_object"}, {"type": "json_schema"}, {"type": "text"}])
)
FUNCTION_TOOLS = st.lists(
    st.builds(
        lambda name, schema: {"type": "function", "name": name, "parameters": schema},
        st.sampled_from(["a", "b", "", "a b"]),
        SCHEMAS,
    ),
    max_size=2,
)
TOOLS = st.lists(
    st.builds(
        lambda name, schema: {"type": "function", "function": {"name": name, "parameters": schema}},
        st.sampled_from(["a", "b", "", "a b"]),
        SCHEMAS,
    ),
    max_size=2,
)
PARTS = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text"]), "text": TEXTS}))
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "developer"]), "content": TEXTS | PARTS},
        optional={"type": st.just("message")},
    )
    | st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": TEXTS, "name": TEXTS, "arguments": TEXTS | st.just('{"a": 1}')}
    )
    | st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": TEXTS, "output": TEXTS | PARTS})
    | st.fixed_dictionaries({"type": st.just("reasoning")}, optional={"content": VALUES}),
    min_size=1,
    max_size=3,
)
PLAUSIBLE = {
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}),
    "n": st.integers(1, 3),
    "min_tokens": st.integers(0, 3),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.1, 1),
    "top_k": st.integers(-1, 400),
    "min_p": st.floats(0, 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.floats(0.1, 3),
    "logit_bias": st.dictionaries(st.integers(0, 310).map(str), st.floats(-100, 100), max_size=3),
    "allowed_token_ids": TOKEN_IDS,
    "bad_words": WORDS,
    "stop": WORDS | st.text(max_size=2),
    "stop_token_ids": TOKEN_IDS,
    "ignore_eos": st.booleans(),
    "response_format": FORMATS | st.sampled_from([{"type": "json_object"}, {"type": "json_schema"}]),
    "structured_outputs": st.fixed_dictionaries(
        {}, optional={"json": SCHEMAS, "regex": REGEXES, "choice": WORDS, "grammar": GRAMMARS}
    ),
    "guided_json": SCHEMAS,
    "guided_regex": REGEXES,
    "guided_choice": WORDS,
    "guided_grammar": GRAMMARS,
    "seed": st.integers(-(2**63), 2**63),
    "prompt_logprobs": st.integers(0, 3),
    "logprobs": st.integers(0, 3) | st.booleans(),
    "top_logprobs": st.integers(0, 3),
    "echo": st.booleans(),
    "return_token_ids": st.booleans(),
    "add_special_tokens": st.booleans(),
    "tools": TOOLS,
    "tool_choice": st.sampled_from(["none", "auto", "required", {"type": "function", "function": {"name": "a"}}]),
    "instructions": TEXTS,
    "text": st.builds(lambda form: {"format": form}, TEXT_FORMATS),
    "metadata": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "store": st.booleans(),
    "previous_response_id": TEXTS,
    "chat_template_kwargs": st.dictionaries(st.sampled_from(["messages", "self", "a"]), VALUES, max_size=2),
}


def bodies(kind: type, needed: dict[str, st.SearchStrategy]) -> st.SearchStrategy:
    """Return bodies of a route: what it needs, with a few other fields; some bodies with wild values in any field."""
    if issubclass(kind, ResponsesBody):
        needed = needed | {"max_output_tokens": st.integers(1, 4), "stream": st.booleans()}
    if issubclass(kind, GenerationBody):
        needed = needed | {"max_tokens": st.integers(1, 4), "stream": st.booleans()}
    names = sorted(kind.model_fields)
    plausible = {name: PLAUSIBLE[name] for name in names if name in PLAUSIBLE and name not in needed}
    if issubclass(kind, ResponsesBody):
        plausible["tools"] = FUNCTION_TOOLS
    some = st.sets(st.sampled_from(list(plausible)), max_size=3) if plausible else st.just(set())
    good = some.flatmap(lambda chosen: st.fixed_dictionaries({name: plausible[name] for name in sorted(chosen)}))
    wild = st.dictionaries(st.sampled_from(sorted({*names, *NO_BEARING, *NEUTRAL})), VALUES, max_size=2)
    return st.builds(
        lambda needed, good, wild, is_wild: needed | good | (wild if is_wild else {}),
        st.fixed_dictionaries(needed),
        good,
        wild,
        st.sampled_from([False, False, True]),
    )


PROMPTS = st.text(min_size=1, max_size=5) | TOKEN_IDS | st.lists(st.text(min_size=1, max_size=3), max_size=2)
ROUTES = {
    "/v1/completions": bodies(CompletionBody, {"prompt": PROMPTS}),
    "/v1/chat/completions": bodies(ChatBody, {"messages": MESSAGES}),
    "/v1/responses": bodies(ResponsesBody, {"input": TEXTS | ITEMS}),
    "/tokenize": bodies(TokenizeBody, {"prompt": TEXTS}) | bodies(TokenizeBody, {"messages": MESSAGES}),
    "/detokenize": bodies(DetokenizeBody, {"tokens": TOKEN_IDS}),
}
BODIES = st.one_of(*(st.tuples(st.just(path), body) for path, body in ROUTES.items()))

PATHS = st.sampled_from([*ROUTES, "/v1/models", "/health", "/version", "/metrics", "/debug/graphs", "/openapi.json"])
ODD_PATHS = st.binary(max_size=8).map(lambda name: f"/v1/models/{quote(name)}") | st.sampled_from(
    [
        "/ui/../../etc/passwd",
        "/ui/%2e%2e/%2e%2e/app.py",
        "/ui/%00",
        "/debug/steps?n=1e9",
        "/debug/steps?n=-1",
        "//",
        "/*",
    ]
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
DEEP = [opening * 100_000 for opening in ("[", '{"a":', '{"prompt":[')]
ODD_JSON = [
    '{"prompt": "a", "max_tokens": ' + "9" * 5000 + "}",
    '{"prompt": "a", "temperature": NaN, "top_p": -Infinity}',
    '{"prompt": "a", "prompt": ["b"], "max_tokens": 1}',
    '{"prompt": "\\ud800", "max_tokens": 1, "echo": true}',
    '\ufeff{"prompt": "a"}',
    '{"prompt": "a"} {}',
]
CONTENTS = (
    st.binary(max_size=20)
    | st.sampled_from([*DEEP, *ODD_JSON]).map(str.encode)
    | st.just(json.dumps({"prompt": math.pi}).encode("utf-16"))
)
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "Accept", "Content-Encoding", "Authorization", "traceparent", "Expect", "Origin"]),
    st.sampled_from(
        ["", "text/plain", "application/json; charset=utf-7", "multipart/form-data", "gzip", "\x7f", "a" * 999]
    ),
    max_size=3,
)
"""``Expect`` holds what no server knows, never 100-continue."""
ODD_REQUESTS = st.tuples(METHODS, PATHS | ODD_PATHS, CONTENTS, HEADERS)
