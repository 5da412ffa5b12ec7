# SPDX-License-Identifier: Apache-2.0
"""Whether long conversations cost in proportion to their length: validation, dumping and the converters.

A figure is the CPU per item of a long conversation over that of a short one: 1 is linear, and below 1 the fixed part of
a call shows.
"""

from collections.abc import Callable
from typing import Any

from nemo_gym._bench.measure import cpu_per_call, in_turns, in_unit, ratios_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.tasks import conversation
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.testing import reply

_LENGTHS = (15, 150, 1500)
_ITEMS_PER_SAMPLE = 6000
_ROUNDS = 9
_LINEAR = 1.3


def run() -> list[Row]:
    """Each operation at 15, 150 and 1,500 items."""
    rows: list[Row] = []
    for name, prepare in _OPERATIONS.items():
        cases = {str(length): _Sample(prepare(conversation(length)), length) for length in _LENGTHS}
        samples = in_turns(cases, _ROUNDS)
        short, middle, long = map(str, _LENGTHS)
        rows += [
            Row.of_samples(f"{name}, 150 items", in_unit(samples, middle, 1e6), "µs of CPU an item"),
            Row.of_samples(f"{name}, 150 items", ratios_of(samples, middle, short), "of 15, per item", _LINEAR),
            Row.of_samples(f"{name}, 1500 items", ratios_of(samples, long, middle), "of 150, per item", _LINEAR),
        ]
    return rows


class _Sample:
    """CPU seconds per item."""

    def __init__(self, operation: Callable[[], object], length: int) -> None:
        self._operation = operation
        self._length = length

    def __call__(self) -> float:
        return cpu_per_call(self._operation, _ITEMS_PER_SAMPLE // self._length) / self._length


def _validate_request(items: list[dict[str, Any]]) -> Callable[[], object]:
    return lambda: NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})


def _validate_response(items: list[dict[str, Any]]) -> Callable[[], object]:
    raw = {**reply().model_dump(), "output": [item for item in items if item.get("role") != "user"]}
    return lambda: NeMoGymResponse.model_validate(raw)


def _dump_request(items: list[dict[str, Any]]) -> Callable[[], object]:
    request = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})
    return lambda: request.model_dump_json(exclude_unset=True)


def _to_chat(items: list[dict[str, Any]]) -> Callable[[], object]:
    converter = ResponsesConverter(return_token_id_information=False)
    request = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})
    return lambda: converter.responses_to_chat_completion_create_params(request)


def _from_chat(items: list[dict[str, Any]]) -> Callable[[], object]:
    converter = ResponsesConverter(return_token_id_information=False)
    request = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})
    chat = converter.responses_to_chat_completion_create_params(request)
    return lambda: converter.chat_completion_to_responses_create_params(chat)


_OPERATIONS = {
    "validate request": _validate_request,
    "validate response": _validate_response,
    "dump request": _dump_request,
    "convert to chat": _to_chat,
    "convert from chat": _from_chat,
}
