# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_advanced_calculations`, for configs and imports that still use it."""

from resources_servers.math_advanced_calculations.app import (
    MathAdvancedCalculationsResourcesServer as MultiverseMathHardResourcesServer,
    MathAdvancedCalculationsResourcesServerConfig as MultiverseMathHardResourcesServerConfig,
)

__all__ = ["MultiverseMathHardResourcesServer", "MultiverseMathHardResourcesServerConfig"]

if __name__ == "__main__":
    MultiverseMathHardResourcesServer.run_webserver()
