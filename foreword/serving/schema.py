"""The schema of the server, OpenAPI 3.1, from the dataclasses of its requests."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from foreword.settings import config, describe
from foreword.settings.ranges import hints_of, range_of
from foreword.version import __version__

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
KEYWORDS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}


def document(bodies: Mapping[str, tuple[type | None, str]], *, is_locked: bool) -> dict[str, Any]:
    """Return the schema of a server.

    Args:
        bodies: by path the dataclass of its requests, None if it takes none, and what it does.
        is_locked: whether requests need a token.
    """
    paths: dict[str, Any] = {}
    for path, (body, summary) in bodies.items():
        answers = {"200": {"description": "the answer"}, "default": {"description": "an error"}}
        operation: dict[str, Any] = {"summary": summary, "responses": answers}
        if body is not None:
            content = {"application/json": {"schema": of_dataclass(body)}}
            operation["requestBody"] = {"required": True, "content": content}
        if names := re.findall(r"\{(\w+)\}", path):
            text = {"in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [{"name": name, **text} for name in names]
        paths[path] = {"get" if body is None else "post": operation}
    schema: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Foreword", "version": __version__},
        "paths": paths,
    }
    if is_locked:
        bearer = {"token": {"type": "http", "scheme": "bearer"}}
        schema["components"] = {"securitySchemes": bearer}
        schema["security"] = [{"token": list[str]()}]
    return schema


def of_dataclass(cls: Any) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of settings."""
    meanings, hints = describe.meanings(cls), hints_of(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for f in fields(cls):
        described = {**_of(hints[f.name]), "description": meanings.get(f.name, "")}
        if f.default is MISSING:
            required.append(f.name)
        elif f.default is not None:
            is_table = is_dataclass(f.default) and not isinstance(f.default, type)
            described["default"] = config.to_table(f.default) if is_table else f.default
        properties[f.name] = described
    needed = {"required": required} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **needed}


def _of(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if (number_range := range_of(hint)) is not None:
        number, interval = number_range
        ends = {word: getattr(interval, end) for end, word in KEYWORDS.items()}
        return {"type": PLAIN[number], **{k: end for k, end in ends.items() if end is not None}}
    if origin is Annotated:
        return _of(args[0])
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(arg) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _of(args[0])}
    if is_dataclass(hint):
        return of_dataclass(hint)
    if hint is types.NoneType:
        return {"type": "null"}
    if origin is dict:
        return {"type": "object"}
    return {"type": PLAIN[hint]} if hint in PLAIN else {}
