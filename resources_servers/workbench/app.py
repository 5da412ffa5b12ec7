# SPDX-License-Identifier: Apache-2.0
"""The older name of `workplace_assistant`, for configs and imports that still use it."""

from resources_servers.workplace_assistant.app import WorkplaceAssistantResourcesServer as WorkbenchResourcesServer

__all__ = ["WorkbenchResourcesServer"]

if __name__ == "__main__":
    WorkbenchResourcesServer.run_webserver()
