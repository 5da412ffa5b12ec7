# SPDX-License-Identifier: Apache-2.0
"""A model backed by a function of token ids: how a trainer's own engine runs our rollouts.

The trainer opens a rollout with a function that takes the ids of a prompt and returns the ids of a reply. The model
server `token_engine_model` then answers the calls of that rollout with it:

    with open_token_rollout(rollout_id, TokenSettings(generate, ChatFormat(tokenizer))) as session:
        ...                                     # play the row that carries the rollout id
    session.turns                               # what the engine read and wrote

The server and the trainer share a process. A conversation that goes on is continued with its exact ids; an edited one
starts a new branch.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nemo_gym._training.alignment import Turn
from nemo_gym._training.chat_tokens import (
    ChatFormat,
    Message,
    NotContinuable,
    ParsedReply,
    Tools,
    build_message,
    digest_history,
)
from nemo_gym.errors import GymError

__all__ = [
    "ChatFormat",
    "EngineReply",
    "Generate",
    "NoTokenRollout",
    "ParsedReply",
    "TokenAnswer",
    "TokenSession",
    "TokenSettings",
    "find_token_session",
    "open_token_rollout",
]


class NoTokenRollout(GymError):
    """A model call belongs to no rollout that a trainer has open."""


@dataclass(frozen=True)
class EngineReply:
    """What an engine wrote."""

    token_ids: list[int]
    log_probs: list[float]
    """One for each of `token_ids`."""
    is_cut_off: bool = False
    """Whether it ended for lack of room rather than because the model was done."""
    policy_version: int | None = None
    """The version of the weights that wrote it, if the engine knows."""


Generate = Callable[[list[int], int | None], Awaitable[EngineReply]]
"""Takes the ids of a prompt, and how many more may be written (None: no limit)."""


@dataclass(frozen=True)
class TokenSettings:
    """What answers the calls of a rollout, and how much room they have."""

    generate: Generate
    chat: ChatFormat
    max_length: int | None = None
    """Maximum ids in a sequence, including its first prompt."""
    max_response_length: int | None = None
    """Maximum ids in a sequence after its first prompt."""
    model: str = "policy"
    """The model's name in replies."""


@dataclass(frozen=True)
class TokenAnswer:
    """One answer: the message, the turn that wrote it, and how it ended."""

    message: dict[str, Any]
    finish_reason: str
    prompt_length: int
    turn: Turn | None
    """None if there was no room left to ask the engine."""


@dataclass(frozen=True)
class _Sequence:
    ids: list[int]
    root_length: int
    """How many of the ids are the prompt it began with."""


class TokenSession:
    """A rollout in progress: its turns, and the conversations that may be continued."""

    def __init__(self, settings: TokenSettings) -> None:
        self.settings = settings
        self.turns: list[Turn] = []
        self._sequences: dict[bytes, _Sequence] = {}

    async def answer(self, messages: Sequence[Message], tools: Tools, limit: int | None = None) -> TokenAnswer:
        """Let the engine write the next message, of at most `limit` ids."""
        digests = digest_history(messages, tools)
        prompt = self._write_prompt(messages, tools, digests)
        room = self._measure_room(prompt)
        if room is not None and room <= 0:
            message = {"role": "assistant", "content": None}
            return TokenAnswer(message, "length", len(prompt.ids), None)
        most = min((each for each in (room, limit) if each is not None), default=None)
        reply = await self.settings.generate(prompt.ids, most)
        if len(reply.token_ids) != len(reply.log_probs):
            raise RuntimeError(
                f"the engine wrote {len(reply.token_ids)} tokens, but returned {len(reply.log_probs)} log-probs.\n"
                "hint: ask it for the log-prob of every token it chose"
            )
        turn = Turn(
            prompt.ids,
            list(reply.token_ids),
            list(reply.log_probs),
            "engine",
            model=self.settings.model,
            policy_version=reply.policy_version,
        )
        self.turns.append(turn)
        parsed = await self.settings.chat.parse(turn.generated_ids, tools)
        message = build_message(parsed)
        so_far = _Sequence([*prompt.ids, *turn.generated_ids], prompt.root_length)
        self._sequences[digest_history([*messages, message], tools)[-1]] = so_far
        ended_by = "stop"
        if reply.is_cut_off:
            ended_by = "length"
        elif parsed.calls:
            ended_by = "tool_calls"
        return TokenAnswer(message, ended_by, len(prompt.ids), turn)

    def _write_prompt(self, messages: Sequence[Message], tools: Tools, digests: Sequence[bytes]) -> _Sequence:
        """Return the prompt's ids: those it continues plus the new ones, or all new if it continues nothing."""
        for number in range(len(messages) - 1, -1, -1):
            known = self._sequences.get(digests[number])
            if known is None:
                continue
            try:
                return _Sequence(self.settings.chat.extend(known.ids, messages, number, tools), known.root_length)
            except NotContinuable:
                break
        ids = self.settings.chat.start(messages, tools)
        return _Sequence(ids, len(ids))

    def _measure_room(self, prompt: _Sequence) -> int | None:
        rooms = []
        if self.settings.max_length is not None:
            rooms.append(self.settings.max_length - len(prompt.ids))
        if self.settings.max_response_length is not None:
            rooms.append(self.settings.max_response_length - (len(prompt.ids) - prompt.root_length))
        return min(rooms, default=None)


_OPEN: dict[str, TokenSession] = {}


@contextmanager
def open_token_rollout(rollout_id: str, settings: TokenSettings) -> Iterator[TokenSession]:
    """Answer the model calls of `rollout_id` as `settings` say, for the duration of the context.

    Give a retried rollout a new id: a late call of the first attempt must not be taken for one of the second.
    """
    if rollout_id in _OPEN:
        raise ValueError(f"the rollout {rollout_id!r} is open already.\nhint: give every rollout an id of its own")
    _OPEN[rollout_id] = session = TokenSession(settings)
    try:
        yield session
    finally:
        del _OPEN[rollout_id]


def find_token_session(rollout_id: str | None) -> TokenSession:
    """Return the session of a rollout; raise NoTokenRollout if it is not open."""
    session = _OPEN.get(rollout_id or "")
    if session is None:
        named = "names no rollout"
        if rollout_id is not None:
            named = f"names the rollout {rollout_id!r}, which is not open"
        raise NoTokenRollout(
            f"a model call {named}; open in this process: {', '.join(list(_OPEN)[:5]) or 'none'}.\n"
            "hint: `token_engine_model` runs in a trainer's process (`nemo_gym.integrations`) and answers only "
            "while that trainer runs rollouts; its config needs `token_id_capture: {enabled: true, all_agents: true}`"
        )
    return session
