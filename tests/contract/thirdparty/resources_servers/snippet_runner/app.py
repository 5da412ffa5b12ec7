# SPDX-License-Identifier: Apache-2.0
import asyncio
import subprocess
import sys
from asyncio import Semaphore
from time import time
from typing import Any, Optional

from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class SnippetRunnerConfig(BaseResourcesServerConfig):
    num_processes: int
    unit_test_timeout_secs: float = 10.0
    debug: bool = False


class UnitTests(BaseModel):
    inputs: list[str]
    outputs: list[str]
    fn_name: Optional[str] = None  # noqa: UP045


class SnippetRunRequest(BaseRunRequest):
    verifier_metadata: Optional[dict[str, Any]] = None  # noqa: UP045


class SnippetVerifyRequest(SnippetRunRequest, BaseVerifyRequest):
    pass


class SnippetVerifyResponse(BaseVerifyResponse):
    verifier_metadata: dict[str, Any] | None = None
    extracted_code: str | None = None
    result: list[bool] | None = None
    seconds: float | None = None


class SnippetRunnerServer(SimpleResourcesServer):
    config: SnippetRunnerConfig

    def model_post_init(self, context):
        self._semaphore: Semaphore = Semaphore(value=self.config.num_processes)

    async def verify(self, body: SnippetVerifyRequest) -> SnippetVerifyResponse:
        text = body.response.output_text
        if not text or not text.strip():
            return SnippetVerifyResponse(**body.model_dump(), reward=0.0)

        tests = UnitTests.model_validate((body.verifier_metadata or {})["unit_tests"])
        code = text.split("```python")[-1].split("```")[0]
        async with self._semaphore:
            start = time()
            loop = asyncio.get_running_loop()
            result = [await loop.run_in_executor(None, self._run, code, given) for given in tests.inputs]
            seconds = time() - start
        passed = [found == wanted for found, wanted in zip(result, tests.outputs, strict=True)]
        return SnippetVerifyResponse(
            **body.model_dump(),
            reward=1.0 if all(passed) else 0.0,
            extracted_code=code,
            result=passed,
            seconds=seconds,
        )

    def _run(self, code: str, given: str) -> str | None:
        try:
            done = subprocess.run(
                [sys.executable, "-S", "-c", code],
                input=given,
                capture_output=True,
                text=True,
                timeout=self.config.unit_test_timeout_secs,
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip()


if __name__ == "__main__":
    SnippetRunnerServer.run_webserver()
