# SPDX-License-Identifier: Apache-2.0
"""Mistakes in values are told in plain words, by the place where they stand."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, integers, lists, none, one_of, recursive, text
from pydantic import BaseModel, Field, PositiveInt, ValidationError, field_validator

from nemo_gym._config.problems import explain


class Inner(BaseModel, extra="forbid"):
    port: int


class Settings(BaseModel):
    limit: PositiveInt | None = None
    repeats: PositiveInt | dict[str, PositiveInt] = 1
    split: Literal["train", "validation"] = "train"
    quiet: bool = False
    rate: float = Field(default=0.5, ge=0, le=1)
    files: list[str] = Field(default=["a", "b"], min_length=2)
    inner: Inner | None = None
    api_key: str = ""
    odd: int = 1

    @field_validator("odd")
    @classmethod
    def _is_odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"must be odd, and {value} is even")
        return value


def mistakes(data: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(data)
    return {".".join(path): text for path, text in explain(caught.value, data).items()}


@pytest.mark.parametrize(
    ("data", "place", "text"),
    [
        ({"limit": "many"}, "limit", "must be a whole number, not 'many'"),
        ({"limit": 1.5}, "limit", "must be a whole number, not 1.5"),
        ({"limit": -1}, "limit", "must be greater than 0, not -1"),
        ({"limit": ""}, "limit", "must be a whole number, but it is empty (is a shell variable unset?)"),
        ({"repeats": 0}, "repeats", "must be greater than 0 or a mapping, not 0"),
        ({"repeats": {"agent": 0}}, "repeats.agent", "must be greater than 0, not 0"),
        ({"repeats": {"agent": "x", "b": 1}}, "repeats.agent", "must be a whole number, not 'x'"),
        ({"split": "trian"}, "split", "must be one of 'train' or 'validation', not 'trian'. Did you mean 'train'?"),
        ({"split": "test"}, "split", "must be one of 'train' or 'validation', not 'test'"),
        ({"quiet": "very"}, "quiet", "must be true or false, not 'very'"),
        ({"rate": 3}, "rate", "must be at most 1.0, not 3"),
        ({"files": ["a"]}, "files", "needs at least 2, not ['a']"),
        ({"inner": {"port": 1, "prot": 2}}, "inner.prot", "is not a known setting"),
        ({"inner": {}}, "inner.port", "is missing"),
        ({"api_key": 12345}, "api_key", "must be text"),
        ({"odd": 2}, "odd", "must be odd, and 2 is even"),
    ],
)
def test_a_mistake_is_told_in_plain_words(data, place, text):
    assert mistakes(data) == {place: text}


JSON = recursive(none() | integers() | text(), lambda inner: lists(inner) | dictionaries(text(), inner), max_leaves=5)


@given(one_of(dictionaries(text(), JSON), JSON))
def test_no_name_of_the_library_is_ever_shown(data):
    try:
        Settings.model_validate(data)
    except ValidationError as error:
        for path, message in explain(error, data).items():
            assert "constrained" not in str(path)
            assert not any(word in message for word in ("Input should", "[type=", "pydantic.dev"))
