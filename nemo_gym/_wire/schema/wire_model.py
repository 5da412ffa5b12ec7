# SPDX-License-Identifier: Apache-2.0
"""What all wire code shares: base classes, unions that look at a value once, and JSON-shaped views of objects.

The unions replace pydantic's smart union: one call picks the class, so a conversation costs linear time and a bad value
gives one error that says what is wrong with it. Which value belongs to which class is decided where the classes are.

A view (`to_plain`) shares the leaves of what it shows, token arrays above all: a turn may carry 100,000 of them and
they are never copied. So a view is for reading; code that needs to change one builds a new dict.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, get_args, get_origin, get_type_hints

from pydantic import (
    VERSION as PYDANTIC_VERSION,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

REFUSED = "refused"  # the tag of a value that belongs to no class of a union


class FastCopyModel(BaseModel):
    """A schema that is cheap to copy: every turn of a conversation copies some."""

    def __copy__(self) -> Self:
        kind = type(self)
        copied = kind.__new__(kind)
        extra = self.__pydantic_extra__
        _set(copied, "__dict__", self.__dict__.copy())
        _set(copied, "__pydantic_extra__", extra.copy() if extra is not None else None)
        _set(copied, "__pydantic_fields_set__", self.__pydantic_fields_set__.copy())
        private = self.__pydantic_private__
        _set(copied, "__pydantic_private__", private.copy() if private is not None else None)
        return copied


_set = object.__setattr__


class WireModel(BaseModel):
    """A schema of ours that drops fields it does not know: what a client sends."""


class OpenModel(FastCopyModel):
    """A schema that keeps fields it does not know: what a provider replies."""

    model_config = ConfigDict(extra="allow")

    # Replies are the openai SDK's objects elsewhere, whose dumps have these names and defaults.
    def to_dict(
        self,
        *,
        mode: Literal["json", "python"] = "json",
        use_api_names: bool = True,
        exclude_unset: bool = True,
        **how: Any,
    ) -> dict[str, Any]:
        return self.model_dump(mode=mode, by_alias=use_api_names, exclude_unset=exclude_unset, **how)

    def to_json(
        self, *, indent: int | None = 2, use_api_names: bool = True, exclude_unset: bool = True, **how: Any
    ) -> str:
        return self.model_dump_json(indent=indent, by_alias=use_api_names, exclude_unset=exclude_unset, **how)


class DeferredModel(OpenModel):
    """An open model whose schema is built when it is first used: most processes never do."""

    # Before 2.14, pydantic cannot dump a deferred class that it meets inside a value that is dumped as what it is.
    model_config = ConfigDict(defer_build=tuple(map(int, PYDANTIC_VERSION.split(".")[:2])) >= (2, 14))


class SelfDescribing(BaseModel):
    """Count the fields that name an object's kind as set, so that a dump of only the set fields can be read back."""

    _kind_fields: ClassVar[frozenset[str]] = frozenset({"type"})

    def model_post_init(self, context: Any, /) -> None:
        self.__pydantic_fields_set__.update(self._kind_fields)


def dump_sdk_object(value: Any) -> Any:
    """Return the fields of an openai SDK object; any other value as it is."""
    if type(value) is not dict and isinstance(value, BaseModel) and not isinstance(value, WireModel | OpenModel):
        return value.model_dump(exclude_unset=True, by_alias=True)
    return value


class SdkTwin(OpenModel):
    """A part of a reply that callers may also give as the openai SDK's object of the same shape."""

    @model_validator(mode="before")
    @classmethod
    def _accept_sdk_object(cls, value: Any) -> Any:
        return value if type(value) is dict else dump_sdk_object(value)


class OpenObject(SdkTwin):
    """An object of which only `type` is read here; every other field is kept and can be read as an attribute."""

    type: str


def raise_refusal(kind: str, message: str, **known: Any) -> NoReturn:
    """Refuse a value while validating: `message` is a template over `known`."""
    raise PydanticCustomError(kind, message, known or None)


def refuse_non_object(what: str, value: Any) -> NoReturn:
    """Refuse a value that is not an object where a tool, a message or the like (`what`) is expected."""
    kind = f"{what.replace(' ', '_')}_shape"
    found = type(value).__name__
    raise_refusal(kind, "a {what} must be an object, not {found}", what=what, found=found)


class PickBy:
    """Annotation of a union: `pick(value)` names the member class, or `REFUSED`, for which `refuse(value)` raises.

    An instance of a member keeps its identity, so `pick` sees raw values only. Values are dumped as what they are,
    which costs no second look and keeps the fields of a subclass.
    """

    def __init__(self, pick: Callable[[Any], str], refuse: Callable[[Any], NoReturn]) -> None:
        self._pick = pick
        self._refuse = refuse

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = {member: str(member.__name__) for member in get_args(source)}
        choices = {name: handler.generate_schema(member) for member, name in names.items()}
        refused = SkipJsonSchema[Annotated[Any, BeforeValidator(self._refuse)]]
        choices[REFUSED] = handler.generate_schema(refused)
        return core_schema.tagged_union_schema(
            choices, _build_discriminator(names, self._pick), serialization=core_schema.simple_ser_schema("any")
        )


def _build_discriminator(names: Mapping[type, str], pick: Callable[[Any], str]) -> Callable[[Any], str]:
    def tag(value: Any) -> str:
        if type(value) is dict:
            return pick(value)
        name = names.get(type(value))
        if name is not None:
            return name
        inherited = next((names[base] for base in type(value).__mro__ if base in names), None)
        return inherited or (pick(value) if isinstance(value, Mapping) else REFUSED)

    return tag


class PickByType:
    """Annotation of a union whose members are told apart by `type`; `refuse(known, value)` raises for other values.

    The types are those of the members' literals. Of two members with the same one, the later is picked.
    """

    def __init__(self, refuse: Callable[[str, Any], NoReturn]) -> None:
        self._refuse = refuse

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = {
            kind: member.__name__ for member in get_args(source) for kind in get_args(get_type_hints(member)["type"])
        }

        def pick(value: Mapping[str, Any]) -> str:
            found = value.get("type")
            return names.get(found, REFUSED) if isinstance(found, str) else REFUSED

        picker = PickBy(pick, partial(self._refuse, ", ".join(names)))
        return picker.__get_pydantic_core_schema__(source, handler)


class _TextOr:
    """Annotation of a union of a text and something else: errors are about the branch that the value belongs to."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text, other = (member for member in get_args(source) if member is not type(None))
        other_tag = "list" if get_origin(other) is list else "object"
        schema = core_schema.tagged_union_schema(
            {"str": handler.generate_schema(text), other_tag: handler.generate_schema(other)},
            lambda value: "str" if isinstance(value, str) else other_tag,
            serialization=core_schema.simple_ser_schema("any"),
        )
        return core_schema.nullable_schema(schema) if type(None) in get_args(source) else schema


text_or_other = _TextOr()


class KeyedPart(OpenModel):
    """A content part that is read as `part.text` and as the dict it was made from, because servers do both."""

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: str) -> bool:
        return key in type(self).model_fields or key in (self.model_extra or {})

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dict):
            return self.model_dump(exclude_unset=True) == other
        return super().__eq__(other)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in self else default

    def keys(self) -> list[str]:
        return [name for name, _ in self]

    def items(self) -> list[tuple[str, Any]]:
        return list(self)


# Most of a conversation is made of these; checking for them first halves the cost of a view.
_SCALARS = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """Return `value` with models as dicts. Lists of scalars are the very same objects."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list or kind is tuple:
        holds_objects = value and type(value[0]) not in _SCALARS and isinstance(value[0], BaseModel | Mapping)
        return [to_plain(element) for element in value] if holds_objects else value
    if isinstance(value, BaseModel):
        return {name: to_plain(held) for name, held in value}
    if isinstance(value, Mapping):
        return {name: to_plain(held) for name, held in value.items()}
    return value


def get_field(value: Any, name: str) -> Any:
    """Return one field of a model or dict, None where it has none: cheaper than a view of all (log-probs are many)."""
    # A dict is told first: whether something is a Mapping takes time to find out.
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
