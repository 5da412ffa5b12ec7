# SPDX-License-Identifier: Apache-2.0
"""Ask a running agent one question and print what came back, as JSON.

    python responses_api_agents/simple_agent/client.py [--agent NAME] [--question TEXT] [config overrides]

The question offers the tool of the example environment `example_single_tool_call`.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

DEFAULT_AGENT = "example_single_tool_call_simple_agent"
DEFAULT_QUESTION = "I am going out in San Francisco tonight. What should I wear?"
GET_WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city right now.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def weather_question(question: str) -> NeMoGymResponseCreateParamsNonStreaming:
    """The request: the question, and the tool that helps to answer it."""
    return NeMoGymResponseCreateParamsNonStreaming(
        input=[
            {"role": "developer", "content": "Look up the weather before you give advice.", "type": "message"},
            {"role": "user", "content": question, "type": "message"},
        ],
        tools=[GET_WEATHER],
    )


async def ask(client: ServerClient, agent: str, question: str) -> list[dict[str, Any]]:
    """The output items of the agent's response."""
    reply = await client.post(server_name=agent, url_path="/v1/responses", json=weather_question(question))
    await raise_for_status(reply)
    response = NeMoGymResponse.model_validate(await get_response_json(reply))
    return [item.model_dump(mode="json") for item in response.output]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a running agent one question.")
    parser.add_argument("--agent", default=DEFAULT_AGENT, help="instance name of the agent (default: %(default)s)")
    parser.add_argument("--question", default=DEFAULT_QUESTION)
    # What is left are overrides such as `+head_server.port=11001`, which the config reads from the command line.
    arguments, sys.argv[1:] = parser.parse_known_args()
    items = asyncio.run(ask(ServerClient.load_from_global_config(), arguments.agent, arguments.question))
    sys.stdout.write(json.dumps(items, indent=4) + "\n")


if __name__ == "__main__":
    main()
