# SPDX-License-Identifier: Apache-2.0
"""All instructions by id: what arguments each takes, and whether a reply follows it.

A row that asks for an instruction that is not known, or leaves an argument out, cannot be graded, and says so here,
before anything is graded.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from resources_servers.instruction_following import further, ifeval
from resources_servers.instruction_following.languages import known_languages

CHECKS: dict[str, Callable[..., bool]] = {**ifeval.CHECKS, **further.CHECKS}


class Instruction:
    """One instruction of a row, with the arguments that it needs."""

    def __init__(self, instruction_id: str, arguments: Mapping[str, Any] | None) -> None:
        """ValueError for what cannot be graded. Arguments that are null, or that the instruction does not take, are
        left out, because data sets give every instruction all of them."""
        check = CHECKS.get(instruction_id)
        if check is None:
            raise ValueError(f"instruction {instruction_id!r} is not known; known are: {', '.join(sorted(CHECKS))}")
        self.instruction_id = instruction_id
        self._check = check
        given = {name: value for name, value in (arguments or {}).items() if value is not None}
        self._arguments: dict[str, Any] = {}
        for name, (adapter, is_required) in _parameters(check).items():
            if name in given:
                self._arguments[name] = self._validated(name, adapter, given[name])
            elif is_required:
                raise ValueError(f"instruction {instruction_id!r} needs the argument {name!r} in its kwargs")

    def is_followed(self, text: str) -> bool:
        """Return whether the reply does what it was told; an empty one never does."""
        try:
            return bool(text.strip()) and self._check(text, **self._arguments)
        except re.error:  # a keyword that is no regular expression
            return False

    def _validated(self, name: str, adapter: "TypeAdapter[Any]", value: Any) -> Any:
        try:
            valid = adapter.validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ValueError(f"instruction {self.instruction_id!r}: {name} = {value!r}: {problem}") from error
        if name == "language" and valid.strip().lower() not in known_languages():
            raise ValueError(
                f"language {valid!r} cannot be told; those that can: {', '.join(sorted(known_languages()))}"
            )
        return valid


class InstructionFollowingMetadata(BaseModel, extra="allow"):
    """The instructions of a row."""

    instruction_id_list: list[str] = Field(min_length=1)
    prompt: str = ""
    kwargs: list[dict[str, Any] | None] = Field(default_factory=list)
    """The arguments of each instruction; null ones do not count."""
    grading_mode: Literal["binary", "fraction"] = "binary"
    """1 for all of them and else 0, or the share that is followed."""

    @model_validator(mode="after")
    def _can_be_graded(self) -> Self:
        self._instructions()
        return self

    def check(self, text: str) -> list[bool]:
        """Return for each instruction whether `text` follows it."""
        return [instruction.is_followed(text) for instruction in self._instructions()]

    def _instructions(self) -> list[Instruction]:
        ids = self.instruction_id_list
        kwargs = self.kwargs or [None] * len(self.instruction_id_list)
        if len(kwargs) != len(ids):
            raise ValueError(f"there are {len(ids)} instructions, but kwargs for {len(kwargs)}")
        return [Instruction(one, arguments) for one, arguments in zip(ids, kwargs, strict=True)]


@cache
def _parameters(check: Callable[..., bool]) -> dict[str, tuple["TypeAdapter[Any]", bool]]:
    """Type of every argument, and whether it must be given."""
    return {
        name: (TypeAdapter(parameter.annotation), parameter.default is inspect.Parameter.empty)
        for name, parameter in inspect.signature(check, eval_str=True).parameters.items()
        if name != "text"
    }
