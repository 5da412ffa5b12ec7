# SPDX-License-Identifier: Apache-2.0
"""The older name of `workplace_assistant`, for configs and imports that still use it."""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.workplace_assistant.app import WorkplaceAssistantResourcesServer as WorkbenchResourcesServer
from resources_servers.workplace_assistant.app import (
    WorkplaceAssistantResourcesServerConfig as WorkbenchResourcesServerConfig,
)

__all__ = ["WorkbenchResourcesServer", "WorkbenchResourcesServerConfig"]

if __name__ == "__main__":
    WorkbenchResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = WorkbenchResourcesServer.run_webserver()
