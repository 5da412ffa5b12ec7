# SPDX-License-Identifier: Apache-2.0
"""The real client of OpenEnv, in an environment without our package, plays and prints the rewards as JSON.

Even rows are answered rightly, odd rows wrongly. Hands of blackjack are stood, one after the other and all at once.
"""

import asyncio
import json
import sys
from pathlib import Path

from openenv.core.generic_client import GenericEnvClient

BASE, FOLDERS = sys.argv[1], Path(sys.argv[2])


def rows_of(folder):
    return [json.loads(line) for line in (FOLDERS / folder / "data" / "example.jsonl").read_text().splitlines()]


async def stand(client, seed):
    result = await client.reset(seed=seed)
    assert (result.done, result.reward) == (False, None)
    result = await client.step({"text": "<action>stand</action>"})
    assert result.done
    assert (await client.state())["step_count"] == 1
    return result.reward


async def stand_alone(seed):
    async with GenericEnvClient(base_url=f"{BASE}/blackjack") as client:
        return await stand(client, seed)


async def play_blackjack(hands):
    async with GenericEnvClient(base_url=f"{BASE}/blackjack") as client:
        return [await stand(client, seed) for seed in hands]


async def play_synonyms():
    rewards = []
    async with GenericEnvClient(base_url=f"{BASE}/example_multi_step_resources_server") as client:
        for number, row in enumerate(rows_of("example_multi_step")):
            result = await client.reset(row=row)
            assert len(result.observation["tools"]) == 2
            values = []
            for synonym in row["expected_synonyms"]:
                result = await client.step({"tool": "get_synonym_value", "arguments": {"synonym": synonym}})
                values.append(json.loads(result.observation["text"])["synonym_value"])
            given = {"synonym_values": values[number % 2 :]}
            await client.step({"tool": "extract_synonym_values", "arguments": given})
            rewards.append((await client.step({"text": "done"})).reward)
    return rewards


async def play_answers():
    rewards = []
    async with GenericEnvClient(base_url=f"{BASE}/string_match") as client:
        for number, row in enumerate(rows_of("string_match")):
            await client.reset()
            answer = row["expected_answer"] if number % 2 == 0 else "something else"
            rewards.append((await client.step({"text": answer})).reward)
            [refused] = await asyncio.gather(client.step({"text": answer}), return_exceptions=True)
            assert "the episode is over" in str(refused)
    return rewards


async def main():
    hands = range(20)
    rewards = {
        "blackjack": await play_blackjack(hands),
        "blackjack side by side": list(await asyncio.gather(*map(stand_alone, hands))),
        "example_multi_step_resources_server": await play_synonyms(),
        "string_match": await play_answers(),
    }
    print(json.dumps(rewards))


asyncio.run(main())
