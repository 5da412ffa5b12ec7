# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_with_code`, for configs and imports that still use it."""

from resources_servers.math_with_code.app import (
    ExecutePythonRequest,
    ExecutePythonResponse,
)
from resources_servers.math_with_code.app import MathWithCodeResourcesServer as PythonMathExecResourcesServer
from resources_servers.math_with_code.app import (
    MathWithCodeResourcesServerConfig as PythonMathExecResourcesServerConfig,
)
from resources_servers.math_with_code.app import MathWithCodeVerifyRequest as PythonMathExecVerifyRequest
from resources_servers.math_with_code.app import MathWithCodeVerifyResponse as PythonMathExecVerifyResponse

__all__ = [
    "ExecutePythonRequest",
    "ExecutePythonResponse",
    "PythonMathExecResourcesServer",
    "PythonMathExecResourcesServerConfig",
    "PythonMathExecVerifyRequest",
    "PythonMathExecVerifyResponse",
]

if __name__ == "__main__":
    PythonMathExecResourcesServer.run_webserver()
