# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_single_tool_call`, for configs and imports that still use it."""

from resources_servers.example_single_tool_call.app import (
    ExampleSingleToolCallResourcesServer as SimpleWeatherResourcesServer,
)

__all__ = ["SimpleWeatherResourcesServer"]

if __name__ == "__main__":
    SimpleWeatherResourcesServer.run_webserver()
