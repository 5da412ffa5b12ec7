# SPDX-License-Identifier: Apache-2.0
"""The JSON of requests and replies, read and written as FastAPI does, and what a body is refused for."""

import json
from typing import Any

import orjson
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import Scope

from nemo_gym._util.json_depth import MAX_DEPTH
from nemo_gym._util.json_values import UnusableValue, load_json

_FORM_TYPES = (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")


def sends_json(scope: Scope) -> bool:
    """Return whether the request has a body that a plain JSON handler may read."""
    kind = _content_type(scope)
    if kind is None:  # a web page can leave the type out; so may programs
        return not _is_from_web_page(scope)
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def require_json(scope: Scope) -> None:
    """Reject a body of a type that any web page can post to any server without permission."""
    kind = _content_type(scope)
    if kind in _FORM_TYPES or (kind is None and _is_from_web_page(scope)):
        raise HTTPException(415, _explain_not_json(kind))


def _content_type(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind: bytes = value.partition(b";")[0].strip().lower()
            return kind
    return None


def _is_from_web_page(scope: Scope) -> bool:
    return any(name == b"origin" for name, _ in scope["headers"])


def _explain_not_json(kind: bytes | None) -> str:
    named = repr(kind.decode("latin-1")) if kind is not None else "missing"
    return (
        f"the body was not read: its content type is {named}.\n"
        "this endpoint only accepts JSON, because web pages can post other types to any server.\n"
        "hint: send the header `Content-Type: application/json`"
    )


def validate_body(adapter: TypeAdapter[Any], content: Any) -> Any:
    """Return `content` as the adapter's type; report errors the way FastAPI does."""
    try:
        return adapter.validate_python(content, from_attributes=True)
    except ValidationError as error:
        raise build_validation_error(error, content) from error


def build_validation_error(error: ValidationError, content: Any) -> RequestValidationError:
    """Return FastAPI's error for a request body that is not of its type."""
    problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
    return RequestValidationError(problems, body=content)


def parse_json(raw: bytes) -> Any:
    """Return a request body as JSON; report errors the way FastAPI does."""
    try:
        return from_json(raw)  # unlike orjson, it keeps integers of any size and accepts NaN and Infinity
    except ValueError as error:
        if str(error).startswith("recursion limit"):
            raise build_depth_error() from error
        try:
            return load_json(raw)
        except RecursionError as deep:
            raise build_depth_error() from deep
        except UnusableValue as unusable:
            raise build_value_error(unusable) from unusable
        except json.JSONDecodeError as error:
            raise _build_syntax_error(error.pos, error.msg) from error
        except UnicodeDecodeError as error:
            raise _build_syntax_error(error.start, "not UTF-8") from error


def _build_syntax_error(position: int, reason: str) -> RequestValidationError:
    problem = {"type": "json_invalid", "loc": ("body", position), "msg": "JSON decode error", "input": {}}
    return RequestValidationError([{**problem, "ctx": {"error": reason}}])


def build_depth_error() -> RequestValidationError:
    """Return the error for a request body whose JSON is nested too deeply to be handled."""
    said = f"The JSON is nested more than {MAX_DEPTH} levels deep, which no part of NeMo Gym handles; flatten it"
    return RequestValidationError([{"type": "json_too_deep", "loc": ("body",), "msg": said, "input": None}])


def build_value_error(error: UnusableValue) -> RequestValidationError:
    """Return the error for a request body with a value that is no JSON."""
    return RequestValidationError([{"type": "json_value", "loc": ("body",), "msg": str(error), "input": None}])


def serialize_reply(adapter: TypeAdapter[Any] | None, result: Any) -> bytes:
    """Return a handler's result as the bytes of the reply."""
    if adapter is None:
        return _dump_unannotated(result)
    try:
        return adapter.dump_json(adapter.validate_python(result, from_attributes=True), by_alias=True, warnings=False)
    except ValidationError as error:
        problems = [{**problem, "loc": ("response", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise ResponseValidationError(problems, body=result) from error


def _dump_unannotated(result: Any) -> bytes:
    try:
        return orjson.dumps(result, default=jsonable_encoder, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a subclass of float, such as numpy's, or an integer of more than 64 bits
        return bytes(JSONResponse(jsonable_encoder(result)).body)
