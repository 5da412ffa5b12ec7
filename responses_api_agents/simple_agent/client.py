# SPDX-License-Identifier: Apache-2.0
"""Ask a running agent one question and print what came back, as JSON.

    python responses_api_agents/simple_agent/client.py [--agent NAME] [--question TEXT] [config overrides]

The only agent that runs is asked; among several, the one called `simple_agent`, unless `--agent` chooses another. The
question offers the tool of the example environment `example_single_tool_call`.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from nemo_gym.errors import GymError, UnknownServerError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

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


def make_weather_question(question: str) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return the request: the question, and the tool that helps to answer it."""
    return NeMoGymResponseCreateParamsNonStreaming(
        input=[
            {"role": "developer", "content": "Look up the weather before you give advice.", "type": "message"},
            {"role": "user", "content": question, "type": "message"},
        ],
        tools=[GET_WEATHER],
    )


def find_only_agent(client: ServerClient) -> str:
    """Return the name of the agent that runs; among several only one called `simple_agent` is taken."""
    servers = GlobalConfigDictParser().filter_for_server_instance_configs(client.global_config_dict)
    agents = [server.name for server in servers if server.SERVER_TYPE == "responses_api_agents"]
    if not agents:
        raise UnknownServerError("none of the servers that run is an agent.\nhint: start a config that has one")
    if "simple_agent" in agents:
        return "simple_agent"
    if len(agents) > 1:
        listed = "".join(f"\n  {agent}" for agent in agents)
        raise UnknownServerError(f"{len(agents)} agents run:{listed}\nhint: choose one, as in `--agent {agents[0]}`")
    return agents[0]


async def ask(client: ServerClient, agent: str, question: str) -> list[dict[str, Any]]:
    """Return the output items of the agent's response."""
    reply = await client.post(server_name=agent, url_path="/v1/responses", json=make_weather_question(question))
    await raise_for_status(reply)
    response = NeMoGymResponse.model_validate(await get_response_json(reply))
    return [item.model_dump(mode="json") for item in response.output]


def main() -> int:
    parser = argparse.ArgumentParser(description="Ask a running agent one question.")
    parser.add_argument("--agent", help="instance name of the agent; the only one that runs need not be named")
    parser.add_argument("--question", default=DEFAULT_QUESTION)
    # What is left are overrides such as `+head_server.port=11001`.
    arguments, overrides = parser.parse_known_args()
    try:
        get_global_config_dict(GlobalConfigDictParserConfig(overrides=overrides, offline=True))
        client = ServerClient.load_from_global_config()
        agent = arguments.agent or find_only_agent(client)
        items = asyncio.run(ask(client, agent, arguments.question))
    except GymError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(json.dumps(items, indent=4) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
