# SPDX-License-Identifier: Apache-2.0
"""The values that are passed between two servers as objects: a task's create params and its response.

These two are large, and both sides know their classes. If the receiving class declares exactly these, each side has its
own object with its own lists, and shares only the items in them; everything else is passed as JSON.
"""

from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming

OBJECT_TYPES: frozenset[Any] = frozenset({NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming})
"""The classes whose instances are passed as objects."""

ObjectT = TypeVar("ObjectT", NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming)


@lru_cache(maxsize=1024)
def list_object_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of `kind` that accept an object: declared as its class, with no validator on the raw data."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return ()
    hooks = kind.__pydantic_decorators__
    if hooks.validators or hooks.root_validators or hooks.model_validators or hooks.model_serializers:
        return ()
    hooked = {
        name
        for found in (hooks.field_validators, hooks.field_serializers)
        for decorator in found.values()
        for name in decorator.info.fields
    }
    return tuple(
        name
        for name, field in kind.model_fields.items()
        if field.annotation in OBJECT_TYPES
        and not (field.alias or field.validation_alias or field.serialization_alias)
        and not field.metadata
        and not hooked & {name, "*"}
    )


@lru_cache(maxsize=1024)
def list_read_fields(kind: Any) -> frozenset[str] | None:
    """Return the only names that `kind` reads from a JSON object; None if it may read anything."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    hooks = kind.__pydantic_decorators__
    is_open = kind.model_config.get("extra", "ignore") != "ignore" or kind.__init__ is not BaseModel.__init__
    is_renamed = any(field.alias or field.validation_alias for field in kind.model_fields.values())
    if is_open or is_renamed or hooks.root_validators or hooks.model_validators:
        return None
    return frozenset(kind.model_fields)


def copy_for_receiver(value: ObjectT) -> ObjectT:
    """Return a copy of `value` for the receiver: what it sets on it, or adds to its lists, stays its own."""
    copied = value.__copy__()
    fields = copied.__dict__
    for name in ("output" if "output" in fields else "input", "tools"):
        if type(fields.get(name)) is list:
            fields[name] = fields[name].copy()
    return copied


def dump_around_objects(value: Any) -> dict[str, Any] | None:
    """Return `value` as a JSON object in which passed objects stay themselves; None if it has none."""
    kind: Any = type(value)
    names = list_object_fields(kind)
    objects = {name: value.__dict__[name] for name in names if type(value.__dict__.get(name)) in OBJECT_TYPES}
    if not objects:
        return None
    rest = value.model_dump(mode="json", by_alias=True, exclude=set(objects), warnings=False)
    # In field order, which is that of the bytes: the two come first in every class of the contract.
    first = next(iter(kind.__pydantic_fields__))
    if first in objects:
        return {**objects, **rest}
    return {**rest, **objects}
