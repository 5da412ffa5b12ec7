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

REQUIRED_TOKEN_METADATA_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
TOKEN_METADATA_FIELDS = (*REQUIRED_TOKEN_METADATA_FIELDS, "routed_experts")
_TOKEN_METADATA_FIELDS = frozenset(TOKEN_METADATA_FIELDS)


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
    if _TOKEN_METADATA_FIELDS.isdisjoint(value):
        return False
    return any(value.get(field) is not None for field in TOKEN_METADATA_FIELDS)


def missing_token_fields(value: Mapping[str, Any]) -> list[str]:
    return [field for field in REQUIRED_TOKEN_METADATA_FIELDS if value.get(field) is None]


def refuse_partial_tokens(value: Mapping[str, Any]) -> NoReturn:
    refusal(
        "partial_token_metadata",
        "token metadata must come complete: {missing} missing beside {present}",
        missing=", ".join(missing_token_fields(value)),
        present=", ".join(field for field in TOKEN_METADATA_FIELDS if value.get(field) is not None),
    )
