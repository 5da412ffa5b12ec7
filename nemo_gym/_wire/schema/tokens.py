# SPDX-License-Identifier: Apache-2.0
"""The tokens of a reply: their ids and log-probs for training, which come complete or not at all, and their counts.

What produces the ids (an inference server) and what checks their lengths lives with the models.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NoReturn, NotRequired, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from typing_extensions import TypedDict

from nemo_gym._wire.schema.wire_model import SdkTwin, dump_sdk_object, raise_refusal

__all__ = [
    "REQUIRED_TOKEN_METADATA_FIELDS",
    "TOKEN_METADATA_FIELDS",
    "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseOutputTokensDetails",
    "NeMoGymResponseUsage",
    "RoutedExperts",
    "TokenIDLogProbMixin",
    "TokenIDLogProbTypedDictMixin",
    "accumulate_response_usage",
]

RoutedExperts = str | list[list[list[int]]]

# In this order they are dumped and named, in every run: the order of a set changes from process to process.
REQUIRED_TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
ALL_TOKEN_FIELDS = (*REQUIRED_TOKEN_FIELDS, "routed_experts")
REQUIRED_TOKEN_METADATA_FIELDS = frozenset(REQUIRED_TOKEN_FIELDS)
TOKEN_METADATA_FIELDS = frozenset(ALL_TOKEN_FIELDS)


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
    """Return whether any token field is there; one that is None counts as absent."""
    if TOKEN_METADATA_FIELDS.isdisjoint(value):
        return False
    return any(value.get(field) is not None for field in ALL_TOKEN_FIELDS)


def pick_token_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token fields that `value` has."""
    return {field: value[field] for field in ALL_TOKEN_FIELDS if value.get(field) is not None}


def list_missing_token_fields(value: Mapping[str, Any]) -> list[str]:
    return [field for field in REQUIRED_TOKEN_FIELDS if value.get(field) is None]


def refuse_partial_tokens(value: Mapping[str, Any]) -> NoReturn:
    raise_refusal(
        "partial_token_metadata",
        "token metadata must come complete: {missing} missing beside {present}",
        missing=", ".join(list_missing_token_fields(value)),
        present=", ".join(pick_token_fields(value)),
    )


Details = TypeVar("Details", bound=SdkTwin)
# Clients with strict types (Codex, litellm, the SDKs of OpenAI) accept no null here.
DetailCount = Annotated[int, BeforeValidator(lambda count: 0 if count is None else count)]


class NeMoGymResponseInputTokensDetails(SdkTwin):
    cached_tokens: DetailCount = 0
    cache_write_tokens: DetailCount = 0


class NeMoGymResponseOutputTokensDetails(SdkTwin):
    reasoning_tokens: DetailCount = 0


class NeMoGymResponseUsage(SdkTwin):
    """Token counts; a detail that the provider did not give is 0."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails = Field(default_factory=NeMoGymResponseInputTokensDetails)
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails = Field(
        default_factory=NeMoGymResponseOutputTokensDetails
    )
    total_tokens: int

    @model_validator(mode="before")
    @classmethod
    def _accept_sdk_object(cls, value: Any) -> Any:
        given = dump_sdk_object(value)
        if not isinstance(given, dict):
            return given
        nulls = [name for name in ("input_tokens_details", "output_tokens_details") if given.get(name, "") is None]
        if not nulls:
            return given
        return {**given, **{name: {} for name in nulls}}

    @classmethod
    def sum_from_list(cls, usages: Iterable[Self | None]) -> Self | None:
        """Return the sum of those that are known: zeros if no usage is given, None if none of the given is known."""
        given = list(usages)
        known = [usage for usage in given if usage is not None]
        if not known:
            return None if given else cls(input_tokens=0, output_tokens=0, total_tokens=0)
        # Constructed, because a usage that was assigned None as details has a sum too.
        return cls.model_construct(  # type: ignore[return-value]  # the mypy plugin of pydantic forgets `Self`
            input_tokens=sum([usage.input_tokens for usage in known]),
            input_tokens_details=_sum_details([usage.input_tokens_details for usage in known]),
            output_tokens=sum([usage.output_tokens for usage in known]),
            output_tokens_details=_sum_details([usage.output_tokens_details for usage in known]),
            total_tokens=sum([usage.total_tokens for usage in known]),
        )


def _sum_details(details: list[Details]) -> Details:
    """Return the sums of the details; where one of the objects is None, the first stays as it is."""
    if any(one is None for one in details):
        return details[0]
    kind = type(details[0])
    return kind.model_validate({name: sum(getattr(one, name) for one in details) for name in kind.model_fields})


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """Add one more reply's usage to `total`; either may be None."""
    return NeMoGymResponseUsage.sum_from_list([total, additional])
