# SPDX-License-Identifier: Apache-2.0
"""Play episodes with OpenEnv's own client: lines with `url`, `reset` and `actions` in, what each step gave out."""

import asyncio
import json
import sys

from openenv.core import GenericEnvClient


async def play(url, reset, actions):
    async with GenericEnvClient(base_url=url) as client:
        begun = await client.reset(**reset)
        steps = []
        for action in actions:
            result = await client.step(action)
            steps.append([result.observation, result.reward, result.done])
            if result.done:
                break
        return {"begun": begun.observation, "steps": steps}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(play(**json.loads(line)))))
