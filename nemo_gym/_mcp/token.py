# SPDX-License-Identifier: Apache-2.0
"""The session token: which session an MCP call belongs to and which tools it may use, signed.

It does not expire: a session lives as long as its server keeps its state.
"""

from dataclasses import dataclass

from itsdangerous import BadData, URLSafeSerializer

_SALT = "nemo-gym-mcp-session"


@dataclass(frozen=True)
class Grant:
    """What the holder of a token may do."""

    session_id: str
    tools: frozenset[str] | None
    """Names of the tools the session may use; None: all of them."""

    def allows(self, tool: str) -> bool:
        """Whether the session may use `tool`."""
        return self.tools is None or tool in self.tools


class GrantSigner:
    """Turns grants into tokens and back."""

    def __init__(self, secret: str) -> None:
        self._serializer = URLSafeSerializer(secret, salt=_SALT)

    def token(self, grant: Grant) -> str:
        """`grant` as text that nobody without the secret can make."""
        tools = None if grant.tools is None else sorted(grant.tools)
        return str(self._serializer.dumps({"sid": grant.session_id, "tools": tools}))

    def grant(self, token: str) -> Grant | None:
        """What `token` allows; None if it was not made here."""
        try:
            content = self._serializer.loads(token)
        except BadData:
            return None
        tools = content["tools"]
        return Grant(content["sid"], None if tools is None else frozenset(tools))
