# SPDX-License-Identifier: Apache-2.0
"""How fast the real model is, and how much work requests are."""

import pytest

from nemo_gym.server_utils import get_response_json
from responses_api_models.local_model.tests.conftest import FIELDS, Serve

pytestmark = pytest.mark.local_model

TOOL = {
    "type": "function",
    "name": "look_up",
    "description": "Look something up",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    "strict": True,
}


async def test_a_forecast_tells_size_speed_and_the_work_of_each_sample(serve: Serve):
    samples = [
        {"input": "hello", "max_output_tokens": 7},
        {"input": "hello", "max_output_tokens": 7, "tools": [TOOL]},
        {"input": "hello " * 2000},
    ]
    async with serve() as client:
        forecast = await get_response_json(await client.post("policy_model", "/forecast", json={"samples": samples}))
    assert forecast["model"] == "SmolLM2-135M-Instruct"
    assert 130e6 < forecast["parameters"] < 140e6
    assert forecast["read_tokens_per_s"] > 0
    assert forecast["written_tokens_per_s"] > 0
    short, with_tools, long = forecast["work"]
    assert (short["most_output_tokens"], long["most_output_tokens"]) == (7, 0)
    assert with_tools["prompt_tokens"] > short["prompt_tokens"]
    assert with_tools["prompt_tokens"] + with_tools["most_output_tokens"] == FIELDS["context_length"]
    assert long["prompt_tokens"] == FIELDS["context_length"]
