# SPDX-License-Identifier: Apache-2.0
"""What your own token sink or token source has to offer; all methods are coroutines.

A sink may also offer `begin_call(rollout_id, model_call_id)`, which is called before the model is, and
`explain_incomplete(rollout_id, model_call_id, reason)`, which is called before `mark_incomplete`.
"""

from typing import Protocol, runtime_checkable

from nemo_gym.token_id_capture.records import TokenCaptureSnapshot, TokenEntry


@runtime_checkable
class TokenSink(Protocol):
    """Where a model server puts tokens. Called on the server's event loop."""

    async def put(self, entry: TokenEntry) -> None:
        """Keep the tokens of one answer."""

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """Note that tokens of the rollout were lost."""

    async def close(self) -> None:
        """Called once, when the server shuts down."""


@runtime_checkable
class TokenSource(Protocol):
    """Where the collector takes tokens from, once per rollout."""

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Take no more tokens of the rollout and return what there is; asking again gives the same."""

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Delete what the snapshot holds; False, and nothing is deleted, if something was added since."""

    async def close(self) -> None:
        """Called once, when the collection ends."""


@runtime_checkable
class RestartableTokenSource(Protocol):
    """A source that can be told that a rollout is played again under the same id."""

    async def restart(self, rollout_id: str) -> None:
        """Forget the rollout; what is put from now on counts."""
