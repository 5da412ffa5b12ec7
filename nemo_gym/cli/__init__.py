# SPDX-License-Identifier: Apache-2.0
"""The command line: `gym` (alias `ng`) and the legacy `ng_*` commands.

Programs run servers with `nemo_gym.cli.env.RunHelper`, and see what runs with `StatusCommand`.
"""

from typing import TYPE_CHECKING, Any

from nemo_gym._util.moved_names import find_moved_names

if TYPE_CHECKING:
    from nemo_gym.cli.env_status import StatusCommand as StatusCommand
else:
    _find_moved_name = find_moved_names(__name__)

    def __getattr__(name: str) -> Any:
        if name == "StatusCommand":
            from nemo_gym.cli.env_status import StatusCommand

            return StatusCommand
        return _find_moved_name(name)
