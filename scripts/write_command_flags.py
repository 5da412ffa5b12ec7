# SPDX-License-Identifier: Apache-2.0
"""Write `nemo_gym/_config/command_flags.json`, the flags and keys of all commands, from their settings classes.

If a merge conflicts in that file, take either side and run `make format`.
"""

from pydantic import BaseModel

from nemo_gym._config.command_flags import TABLE, write_table
from nemo_gym.cli.command_table import VERSION, list_commands
from nemo_gym.cli.flags import load


def make_table() -> str:
    """Return the table as the settings classes declare it."""
    names = [command.settings for command in (*list_commands().values(), VERSION)]
    classes: dict[str, type[BaseModel]] = {name: load(name) for name in dict.fromkeys(names)}
    return write_table(classes)


if __name__ == "__main__":
    TABLE.write_text(make_table())
