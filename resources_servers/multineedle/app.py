# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_multi_step`, for configs and imports that still use it."""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer as MultineedleResourcesServer
from resources_servers.example_multi_step.app import (
    ExampleMultiStepResourcesServerConfig as MultineedleResourcesServerConfig,
)

__all__ = ["MultineedleResourcesServer", "MultineedleResourcesServerConfig"]

if __name__ == "__main__":
    MultineedleResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = MultineedleResourcesServer.run_webserver()
