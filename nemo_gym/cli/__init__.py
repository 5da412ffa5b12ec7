# SPDX-License-Identifier: Apache-2.0
"""The command line: `gym` (alias `ng`) and the legacy `ng_*` commands.

Programs run servers with `nemo_gym.cli.env.RunHelper`, and see which ones run with `StatusCommand`.
"""

from typing import TYPE_CHECKING

from nemo_gym._util.moved_names import find_names

if TYPE_CHECKING:
    from nemo_gym.cli.env.server_status import StatusCommand as StatusCommand
else:
    __getattr__ = find_names(__name__, {"nemo_gym.cli.env.server_status": "StatusCommand"})
