# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_multi_step`, for configs and imports that still use it."""

from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer as MultineedleResourcesServer

__all__ = ["MultineedleResourcesServer"]

if __name__ == "__main__":
    MultineedleResourcesServer.run_webserver()
