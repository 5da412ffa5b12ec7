# SPDX-License-Identifier: Apache-2.0
"""The older name of `code_gen`, for configs and imports that still use it."""

from resources_servers.code_gen.app import (
    CodeGenResourcesServer as CompCodingResourcesServer,
    CodeGenResourcesServerConfig as CompCodingResourcesServerConfig,
    CodeGenRunRequest as CompCodingRunRequest,
    CodeGenVerifyRequest as CompCodingVerifyRequest,
    CodeGenVerifyResponse as CompCodingVerifyResponse,
)

__all__ = [
    "CompCodingResourcesServer",
    "CompCodingResourcesServerConfig",
    "CompCodingRunRequest",
    "CompCodingVerifyRequest",
    "CompCodingVerifyResponse",
]

if __name__ == "__main__":
    CompCodingResourcesServer.run_webserver()
