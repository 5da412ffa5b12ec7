# SPDX-License-Identifier: Apache-2.0
"""A token sink and a token source as others write them: a ledger in memory that both ends reach by its name."""

from dataclasses import dataclass, field
from typing import ClassVar

from nemo_gym.token_id_capture import TokenCaptureSnapshot
from nemo_gym.token_id_capture.protocols import TokenSink, TokenSource
from nemo_gym.token_id_capture.records import TokenEntry


@dataclass
class Page:
    """What the ledger knows of one rollout."""

    entries: list[TokenEntry] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    revision: int = 0


class Ledger:
    """All pages, and the order in which things happened."""

    by_name: ClassVar[dict[str, "Ledger"]] = {}

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.log: list[str] = []

    @classmethod
    def named(cls, name: str) -> "Ledger":
        return cls.by_name.setdefault(name, cls())

    def page(self, rollout_id: str) -> Page:
        return self.pages.setdefault(rollout_id, Page())


class LedgerSink(TokenSink):
    """The end of the model servers. It cannot be read."""

    def __init__(self, ledger: str, capacity: int = 1000) -> None:
        self.ledger, self.capacity = Ledger.named(ledger), capacity

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        self.ledger.page(rollout_id).begun.add(model_call_id)
        self.ledger.log.append("begin")

    async def put(self, entry: TokenEntry) -> None:
        page = self.ledger.page(entry.rollout_id)
        if len(page.entries) >= self.capacity:
            raise OverflowError("the page is full")
        page.entries.append(entry)
        page.begun.discard(entry.model_call_id)
        page.revision += 1
        self.ledger.log.append("put")

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        self.ledger.page(rollout_id).lost.add(model_call_id)
        self.ledger.log.append("mark")

    async def close(self) -> None:
        self.ledger.log.append("sink closed")


class LedgerSource(TokenSource):
    """The end of the trainer."""

    def __init__(self, ledger: str) -> None:
        self.ledger = Ledger.named(ledger)

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        page = self.ledger.page(rollout_id)
        self.ledger.log.append("freeze")
        return TokenCaptureSnapshot(
            rollout_id=rollout_id,
            entries=list(page.entries),
            incomplete=bool(page.begun or page.lost),
            snapshot_id=f"page-{rollout_id}",
            version=page.revision,
        )

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        page = self.ledger.page(rollout_id)
        if snapshot_id != f"page-{rollout_id}" or version != page.revision:
            return False
        del self.ledger.pages[rollout_id]
        self.ledger.log.append("drop")
        return True

    async def close(self) -> None:
        self.ledger.log.append("source closed")


class LedgerStore(LedgerSink, LedgerSource):
    """Both ends in one class, so that a config needs to name only one."""
