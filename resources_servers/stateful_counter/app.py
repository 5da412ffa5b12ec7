# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_session_state_mgmt`, for configs and imports that still use it."""

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.example_session_state_mgmt.app import (
    ExampleSessionStateMgmtResourcesServer as StatefulCounterResourcesServer,
)
from resources_servers.example_session_state_mgmt.app import (
    ExampleSessionStateMgmtResourcesServerConfig as StatefulCounterResourcesServerConfig,
)

__all__ = ["StatefulCounterResourcesServer", "StatefulCounterResourcesServerConfig"]

if __name__ == "__main__":
    StatefulCounterResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = StatefulCounterResourcesServer.run_webserver()
