# SPDX-License-Identifier: Apache-2.0
"""Token counts of a reply, and their sum over the turns of a rollout."""

from collections.abc import Iterable
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field

from nemo_gym._wire.base import SdkTwin

Details = TypeVar("Details", bound=SdkTwin)


class NeMoGymResponseInputTokensDetails(SdkTwin):
    cached_tokens: int | None = None


class NeMoGymResponseOutputTokensDetails(SdkTwin):
    reasoning_tokens: int | None = None


def _null_as_unknown(details: Any) -> Any:
    return {} if details is None else details


class NeMoGymResponseUsage(SdkTwin):
    """Token counts; a detail that the provider did not give is None, not zero."""

    input_tokens: int
    input_tokens_details: Annotated[NeMoGymResponseInputTokensDetails, BeforeValidator(_null_as_unknown)] = Field(
        default_factory=NeMoGymResponseInputTokensDetails
    )
    output_tokens: int
    output_tokens_details: Annotated[NeMoGymResponseOutputTokensDetails, BeforeValidator(_null_as_unknown)] = Field(
        default_factory=NeMoGymResponseOutputTokensDetails
    )
    total_tokens: int

    @classmethod
    def sum_from_list(cls, usages: Iterable[Self | None]) -> Self | None:
        """The sum of those that are known; None if none is."""
        known = [usage for usage in usages if usage is not None]
        if not known:
            return None
        # Constructed, because a usage that was assigned None as details has a sum too.
        return cls.model_construct(  # type: ignore[return-value]  # the mypy plugin of pydantic forgets `Self`
            input_tokens=sum(usage.input_tokens for usage in known),
            input_tokens_details=_sum_details([usage.input_tokens_details for usage in known], "cached_tokens"),
            output_tokens=sum(usage.output_tokens for usage in known),
            output_tokens_details=_sum_details([usage.output_tokens_details for usage in known], "reasoning_tokens"),
            total_tokens=sum(usage.total_tokens for usage in known),
        )


def _sum_details(details: list[Details], name: str) -> Details:
    """Return the sum of one detail; where one of the objects is None, the first stays as it is."""
    if any(one is None for one in details):
        return details[0]
    return type(details[0]).model_validate({name: _sum_if_known(getattr(one, name) for one in details)})


def _sum_if_known(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """`total` plus one more reply's usage; either may be None, and a detail unknown in one is unknown in the sum."""
    return NeMoGymResponseUsage.sum_from_list([total, additional])
