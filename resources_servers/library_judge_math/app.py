# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_with_judge`, for configs and imports that still use it."""

from resources_servers.math_with_judge.app import (
    JudgeEvaluation,
    LibraryJudgeMathResourcesServer,
    LibraryJudgeMathResourcesServerConfig,
    LibraryJudgeMathRunRequest,
    LibraryJudgeMathVerifyRequest,
    LibraryJudgeMathVerifyResponse,
)

__all__ = [
    "JudgeEvaluation",
    "LibraryJudgeMathResourcesServer",
    "LibraryJudgeMathResourcesServerConfig",
    "LibraryJudgeMathRunRequest",
    "LibraryJudgeMathVerifyRequest",
    "LibraryJudgeMathVerifyResponse",
]

if __name__ == "__main__":
    LibraryJudgeMathResourcesServer.run_webserver()
