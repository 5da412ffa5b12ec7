# SPDX-License-Identifier: Apache-2.0
"""A resources server as others write them: it runs the model's script in a sandbox of the configured provider."""

from typing import Any

from pydantic import Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxSpec,
    resolve_provider_config,
    resolve_provider_metadata,
    rewrite_image,
)


class ShellGraderConfig(BaseResourcesServerConfig):
    sandbox_provider: str | dict[str, Any]
    image: str = "docker.io/library/bash:5"
    image_rewrites: list[dict[str, str]] = Field(default_factory=list)
    resources: dict[str, Any] = Field(default_factory=dict)
    timeout_s: float = 20


class ShellVerifyRequest(BaseVerifyRequest):
    expected: str


class ShellVerifyResponse(BaseVerifyResponse):
    expected: str
    printed: str | None
    failure: str | None


class ShellGraderServer(SimpleResourcesServer):
    config: ShellGraderConfig

    async def verify(self, body: ShellVerifyRequest) -> ShellVerifyResponse:
        named = get_global_config_dict()
        spec = SandboxSpec(
            image=rewrite_image(self.config.image, self.config.image_rewrites),
            workdir="/task",
            files={"/task/answer.sh": body.response.output_text},
            metadata={**resolve_provider_metadata(self.config.sandbox_provider, named), "task": 7},
            resources=self.config.resources,
            env={"ATTEMPT": 1},
        )
        async with AsyncSandbox(resolve_provider_config(self.config.sandbox_provider, named)) as sandbox:
            await sandbox.start(spec)
            result = await sandbox.exec("sh answer.sh", timeout_s=self.config.timeout_s)
        if result.error_type == "sandbox":
            raise RuntimeError(f"the sandbox failed: {result.stderr}")
        reward = float(result.return_code == 0 and (result.stdout or "").strip() == body.expected)
        return ShellVerifyResponse(**body.model_dump(), reward=reward, printed=result.stdout, failure=result.error_type)
