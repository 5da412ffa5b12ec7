# SPDX-License-Identifier: Apache-2.0
"""The addresses of the people who work here."""

from resources_servers.workplace_assistant.toolkits.tool import ToolError, reads
from resources_servers.workplace_assistant.world import World


@reads(name="First name, last name or both.")
def find_email_address(world: World, name: str) -> list[str]:
    """Finds the email addresses of colleagues by name."""
    parts = name.lower().replace(".", " ").split()
    addresses = [one for one in world.company.addresses if all(part in one.partition("@")[0] for part in parts)]
    if not parts or not addresses:
        raise ToolError("No email addresses found.")
    return addresses
