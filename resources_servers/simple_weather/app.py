# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_single_tool_call`, for configs and imports that still use it."""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.example_single_tool_call.app import (
    ExampleSingleToolCallResourcesServer as SimpleWeatherResourcesServer,
)
from resources_servers.example_single_tool_call.app import (
    ExampleSingleToolCallResourcesServerConfig as SimpleWeatherResourcesServerConfig,
)

__all__ = ["SimpleWeatherResourcesServer", "SimpleWeatherResourcesServerConfig"]

if __name__ == "__main__":
    SimpleWeatherResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SimpleWeatherResourcesServer.run_webserver()
