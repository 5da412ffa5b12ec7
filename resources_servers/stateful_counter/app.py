# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_session_state_mgmt`, for configs and imports that still use it."""

from resources_servers.example_session_state_mgmt.app import (
    ExampleSessionStateMgmtResourcesServer as StatefulCounterResourcesServer,
)

__all__ = ["StatefulCounterResourcesServer"]

if __name__ == "__main__":
    StatefulCounterResourcesServer.run_webserver()
