# SPDX-License-Identifier: Apache-2.0
"""Sessions with a step server that runs in this process under the name `world`."""

from typing import Any

from nemo_gym.testing import reply


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Count."}, **fields}


class Caller:
    """One session with the server `world`."""

    def __init__(self, client: Any, task: dict[str, Any]) -> None:
        self._client, self._task, self._cookies = client, task, {}

    async def post(self, path: str, **fields: Any) -> Any:
        response = await self._client.post("world", path, json={**self._task, **fields}, cookies=self._cookies)
        if response.ok:
            self._cookies = {**self._cookies, **response.cookies}
        return response

    async def reset(self) -> dict[str, Any]:
        return await (await self.post("/reset")).json()

    async def step(self, *said: Any) -> Any:
        return await self.post("/step", response=reply(*said).model_dump())
