# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_with_code`, for configs and imports that still use it."""

from resources_servers.math_with_code.app import (
    ExecutePythonRequest,
    ExecutePythonResponse,
    MathWithCodeResourcesServer as PythonMathExecResourcesServer,
    MathWithCodeResourcesServerConfig as PythonMathExecResourcesServerConfig,
    MathWithCodeVerifyRequest as PythonMathExecVerifyRequest,
    MathWithCodeVerifyResponse as PythonMathExecVerifyResponse,
)

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
