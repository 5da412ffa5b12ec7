# SPDX-License-Identifier: Apache-2.0
"""Token ids and log-probs as they ride on items and chat messages for training, and the rule that they come complete.

What produces them (an inference server) and what checks their lengths lives with the models.
"""

from collections.abc import Mapping
from typing import Any, NoReturn, NotRequired

from pydantic import BaseModel
from typing_extensions import TypedDict

from nemo_gym._wire.base import refusal

RoutedExperts = str | list[list[list[int]]]

# In this order they are dumped and named, in every run: the order of a set changes from process to process.
_REQUIRED = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_ALL = (*_REQUIRED, "routed_experts")
REQUIRED_TOKEN_METADATA_FIELDS = frozenset(_REQUIRED)
TOKEN_METADATA_FIELDS = frozenset(_ALL)


class TokenIDLogProbMixin(BaseModel):
    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: RoutedExperts | None = None


class TokenIDLogProbTypedDictMixin(TypedDict):
    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: NotRequired[RoutedExperts | None]


def has_token_fields(value: Mapping[str, Any]) -> bool:
    """Whether any token field is there; one that is None counts as absent."""
    if TOKEN_METADATA_FIELDS.isdisjoint(value):
        return False
    return any(value.get(field) is not None for field in _ALL)


def token_fields_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token fields that `value` has."""
    return {field: value[field] for field in _ALL if value.get(field) is not None}


def missing_token_fields(value: Mapping[str, Any]) -> list[str]:
    return [field for field in _REQUIRED if value.get(field) is None]


def refuse_partial_tokens(value: Mapping[str, Any]) -> NoReturn:
    refusal(
        "partial_token_metadata",
        "token metadata must come complete: {missing} missing beside {present}",
        missing=", ".join(missing_token_fields(value)),
        present=", ".join(token_fields_of(value)),
    )
