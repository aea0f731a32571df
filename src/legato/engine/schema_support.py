"""Which JSON schemas can be held to. Owns the keywords that the grammar library passes over, found by trying each.

A keyword that is passed over would give output that its own schema refuses, so that the schema is refused instead.
Patterns, and bounds on length, are written so that no string holds what JSON escapes.
"""

import json
from typing import Any

from legato.engine.json_patterns import of_length, written_out
from legato.errors import RequestError

_PASSED_OVER = frozenset(
    {
        "multipleOf",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
    }
)
_VALUES = frozenset({"enum", "const", "default", "examples"})
"""What these hold are values, not schemas."""
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""What these hold are schemas by name."""
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
MAX_DEPTH = 64


def prepared_schema(text: str, param: str) -> str:
    """Return the schema as the library is to have it, so that all output is JSON that the schema in ``text`` accepts.

    Raises RequestError for text that is no JSON, or a schema that could not be held to, naming each such keyword.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError("the schema is not valid JSON", {"found": error}, param=param) from None
    if not isinstance(schema, (dict, bool)):
        raise RequestError("a schema is a JSON object", {"found": type(schema).__name__}, param=param)
    found: list[str] = []
    prepared = _prepared(schema, "#", 0, found)
    if found:
        details = {"found": "; ".join(found[:5]), "options": "a schema without it | a regex or a grammar"}
        raise RequestError("this schema cannot be held to", details, param=param)
    return json.dumps(prepared)


def _prepared(schema: Any, place: str, depth: int, found: list[str]) -> Any:
    """Return a schema with its patterns made safe; what cannot be held to in it and below it joins ``found``."""
    if depth > MAX_DEPTH:
        found.append(f"{place[:80]}: deeper than {MAX_DEPTH}")
        return schema
    if isinstance(schema, list):
        return [_prepared(part, f"{place}/{index}", depth + 1, found) for index, part in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    found.extend(f"{place}: {problem}" for problem in _problems(schema))
    prepared = {}
    for name, value in schema.items():
        below = f"{place}/{name}"
        if name in _VALUES:
            prepared[name] = value
        elif name in _BY_NAME and isinstance(value, dict):
            is_pattern = name == "patternProperties"
            prepared[name] = {
                _safe(key, below, found) if is_pattern else key: _prepared(part, f"{below}/{key}", depth + 2, found)
                for key, part in value.items()
            }
        elif name == "pattern" and isinstance(value, str):
            prepared[name] = _safe(value, below, found)
        elif name not in ("minLength", "maxLength"):
            prepared[name] = _prepared(value, below, depth + 1, found)
    if "minLength" in schema or "maxLength" in schema:
        # The library's own bounds on length let control characters through.
        prepared["pattern"] = of_length(schema.get("minLength", 0), schema.get("maxLength"))
    return prepared


def _safe(pattern: str, place: str, found: list[str]) -> str:
    try:
        return written_out(pattern)
    except ValueError as error:
        found.append(f"{place}: {error}")
        return pattern


def _problems(schema: dict[str, Any]) -> list[str]:
    problems = [name for name in schema if name in _PASSED_OVER and schema[name] is not False]
    lower, upper = (any(name in schema for name in names) for names in (_LOWER, _UPPER))
    lengths = [schema[name] for name in ("minLength", "maxLength") if name in schema]
    if (lower or upper or lengths) and "type" not in schema:
        problems.append("bounds without a type")
    if not all(type(length) is int and length >= 0 for length in lengths):
        problems.append("a length that is no whole number")
    if any(_positive(schema.get(name)) for name in _LOWER) and not upper:
        problems.append("a lower bound above 0 without an upper one")
    if lengths and ("pattern" in schema or "format" in schema):
        problems.append("a length beside a pattern or a format")
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1:
        problems.append("allOf of several")
    required, properties = schema.get("required"), schema.get("properties", {})
    if isinstance(required, list) and isinstance(properties, dict):
        problems += [f"required {name!r} is no property" for name in required if name not in properties]
    return problems


def _positive(bound: Any) -> bool:
    return isinstance(bound, (int, float)) and bound > 0
