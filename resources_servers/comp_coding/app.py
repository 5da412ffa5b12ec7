# SPDX-License-Identifier: Apache-2.0
"""The older name of `code_gen`, for configs and imports that still use it."""

from resources_servers.code_gen.app import CodeGenResourcesServer as CompCodingResourcesServer
from resources_servers.code_gen.app import CodeGenResourcesServerConfig as CompCodingResourcesServerConfig
from resources_servers.code_gen.app import CodeGenRunRequest as CompCodingRunRequest
from resources_servers.code_gen.app import CodeGenVerifyRequest as CompCodingVerifyRequest
from resources_servers.code_gen.app import CodeGenVerifyResponse as CompCodingVerifyResponse

__all__ = [
    "CompCodingResourcesServer",
    "CompCodingResourcesServerConfig",
    "CompCodingRunRequest",
    "CompCodingVerifyRequest",
    "CompCodingVerifyResponse",
]

if __name__ == "__main__":
    CompCodingResourcesServer.run_webserver()
