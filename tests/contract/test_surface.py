# SPDX-License-Identifier: Apache-2.0
"""Every name of the contract is where its table says, is what the table says, and takes what the table says."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from typing_extensions import is_typeddict

import nemo_gym
from tests.contract.shapes import ANY_VALUE, OPTIONAL, REQUIRED, Name
from tests.contract.surface import SURFACE
from tests.contract.surface_runs import PACKAGE_EXPORTS

ENTRIES = [
    pytest.param(module, entry, id=f"{module}.{entry.name}") for module, names in SURFACE.items() for entry in names
]


@pytest.mark.parametrize(("module", "entry"), ENTRIES)
def test_a_name_of_the_contract_is_there_and_has_its_shape(module: str, entry: Name) -> None:
    found = getattr(importlib.import_module(module), entry.name)
    CHECKS[entry.kind](found, entry)
    for base in entry.bases:
        assert issubclass(found, _resolved(base, module)), f"{entry.name} is no {base}"
    for method in entry.methods:
        CHECKS[method.kind](inspect.getattr_static(found, method.name), method)


def test_the_package_offers_the_listed_names_lazily_and_lists_them_sorted() -> None:
    names = [name for listed in PACKAGE_EXPORTS.values() for name in listed.split()]
    assert len(names) == 28
    assert set(names) <= set(nemo_gym.__all__)
    assert list(nemo_gym.__all__) == sorted(nemo_gym.__all__)
    assert set(names) <= set(dir(nemo_gym))
    with pytest.raises(AttributeError, match="NoSuchName"):
        getattr(nemo_gym, "NoSuchName")  # noqa: B009  the point is the lookup


def test_a_table_that_asks_for_too_much_is_noticed() -> None:
    """The checks themselves can fail."""

    def given(a: int, b: int = 2) -> None: ...

    for asked in ("a, b=3", "a, c=1", "b, a", "a, *, c", "", "a, **kwargs"):
        with pytest.raises(AssertionError):
            _check_signature(inspect.signature(given), asked)
    _check_signature(inspect.signature(given), "a, b=2")
    _check_signature(inspect.signature(given), "a, b=...")
    _check_signature(inspect.signature(given), "a")


def _check_class(found: Any, entry: Name) -> None:
    assert inspect.isclass(found)
    if entry.signature is not None:
        _check_signature(inspect.signature(found), entry.signature)


def _check_exception(found: Any, entry: Name) -> None:
    assert issubclass(found, Exception)


def _check_model(found: Any, entry: Name) -> None:
    assert issubclass(found, BaseModel)
    for name, stated in entry.fields.items():
        field = found.model_fields[name]
        if stated is REQUIRED:
            assert field.is_required(), f"{entry.name}.{name} should have no default"
        else:
            assert not field.is_required(), f"{entry.name}.{name} should have a default"
            _check_default(field.get_default(call_default_factory=True, validated_data={}), stated)
    if REQUIRED in entry.fields.values():
        own = [name for name, field in found.model_fields.items() if field.is_required() and name not in entry.fields]
        assert not own, f"{entry.name} needs fields that the contract does not know: {own}"


def _check_dataclass(found: Any, entry: Name) -> None:
    assert dataclasses.is_dataclass(found)
    fields = {field.name: field for field in dataclasses.fields(found)}
    for name in entry.fields:
        missing = (fields[name].default, fields[name].default_factory) == (dataclasses.MISSING, dataclasses.MISSING)
        assert missing is (entry.fields[name] is REQUIRED)
        if not missing:
            made = fields[name].default_factory
            _check_default(fields[name].default if made is dataclasses.MISSING else made(), entry.fields[name])


def _check_enum(found: Any, entry: Name) -> None:
    assert issubclass(found, str)
    assert issubclass(found, Enum)
    if entry.value:
        assert [member.value for member in found] == list(entry.value)
        assert all(member.name == member.value.upper() for member in found)


def _check_typed_dict(found: Any, entry: Name) -> None:
    assert is_typeddict(found)
    assert set(entry.fields) <= found.__required_keys__ | found.__optional_keys__


def _check_alias(found: Any, entry: Name) -> None:
    TypeAdapter(found)


def _check_constant(found: Any, entry: Name) -> None:
    if entry.value is not ANY_VALUE:
        assert found == entry.value
        assert type(found) is type(entry.value) or isinstance(entry.value, set)


def _check_same(found: Any, entry: Name) -> None:
    assert found is _resolved(entry.value, "")


def _check_property(found: Any, entry: Name) -> None:
    assert isinstance(found, property)


def _check_function(found: Any, entry: Name) -> None:
    function = _function(found)
    assert not inspect.iscoroutinefunction(function), f"{entry.name} should not be a coroutine function"
    _check_signature(_signature(found), entry.signature or "")


def _check_coroutine(found: Any, entry: Name) -> None:
    assert inspect.iscoroutinefunction(_function(found)), f"{entry.name} should be a coroutine function"
    _check_signature(_signature(found), entry.signature or "")


def _check_context(found: Any, entry: Name) -> None:
    assert hasattr(found, "__wrapped__")
    assert inspect.isgeneratorfunction(found.__wrapped__)
    _check_signature(_signature(found), entry.signature or "")


CHECKS: dict[str, Callable[[Any, Name], None]] = {
    "alias": _check_alias,
    "class": _check_class,
    "constant": _check_constant,
    "context manager": _check_context,
    "coroutine function": _check_coroutine,
    "dataclass": _check_dataclass,
    "enum": _check_enum,
    "exception": _check_exception,
    "function": _check_function,
    "model": _check_model,
    "property": _check_property,
    "same object": _check_same,
    "typed dict": _check_typed_dict,
}


def _function(found: Any) -> Any:
    return found.__func__ if isinstance(found, classmethod | staticmethod) else found


def _signature(found: Any) -> inspect.Signature:
    """The signature as callers see it: without `self` or `cls`."""
    signature = inspect.signature(_function(found))
    parameters = list(signature.parameters.values())
    bound = isinstance(found, classmethod) or (parameters and parameters[0].name == "self")
    return signature.replace(parameters=parameters[1:] if bound else parameters)


def _check_signature(found: inspect.Signature, asked: str) -> None:
    """Whatever call the asked signature allows, the found one allows too."""
    wanted = inspect.signature(eval(f"lambda {asked}: None")).parameters
    if asked == "*args":
        return
    positional = [p for p in found.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    stated = [p for p in wanted.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional[: len(stated)]] == [p.name for p in stated], found
    for parameter in wanted.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            assert any(p.kind is p.VAR_KEYWORD for p in found.parameters.values()), f"{found} takes no keywords"
            continue
        ours = found.parameters.get(parameter.name)
        assert ours is not None, f"{found} has no {parameter.name!r}"
        if parameter.default is ...:
            assert ours.default is not ours.empty, f"{parameter.name!r} needs a default"
        elif parameter.default is not parameter.empty:
            _check_default(ours.default, parameter.default)
    further = [p for name, p in found.parameters.items() if name not in wanted]
    demanding = [p.name for p in further if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert not demanding, f"{found} needs {demanding}, which the contract does not know"


def _check_default(found: Any, stated: Any) -> None:
    assert stated is OPTIONAL or found == stated, f"default {found!r}, not {stated!r}"


def _resolved(reference: str, module: str) -> Any:
    """`module:name`, or a name of `module` or of the builtins."""
    where, _, name = reference.rpartition(":")
    found = importlib.import_module(where or module)
    return getattr(found, name) if where or hasattr(found, name) else getattr(importlib.import_module("builtins"), name)
