# SPDX-License-Identifier: Apache-2.0
"""The contract of a resources server, made executable: each check says what it looked at and what it found.

The server runs already and is reached through a `Table`. Checks that cannot be made say why; none is left out in
silence. Timing is reported, and fails a check only where it is out of all proportion.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nemo_gym._authoring.scripted_play import (
    NO_BODIES,
    NO_RESPONSES,
    STALL_FAILS_S,
    STALL_WARNS_S,
    Guess,
    Played,
    Table,
    Turn,
    guess_answers,
    make_odd_replies,
    measure_longest_stall,
)

Status = Literal["passed", "failed", "warned", "skipped"]
COPIES = 4
"""How many sessions of every row are played at once."""
_CLOSE = 1e-6
_SHOWN = 3
_NO_ROWS = "there are no valid example rows"


@dataclass(frozen=True)
class Check:
    """One promise of the contract and whether it is kept."""

    name: str
    status: Status
    about: str


@dataclass(frozen=True)
class Subject:
    """A running server and what it ships."""

    table: Table
    rows: Sequence[Mapping[str, Any]]
    rows_from: str
    has_steps: bool = False
    """Whether it is played by `/reset` and `/step`."""
    tools_there: frozenset[str] = frozenset()
    """The tools of the rows that have a route."""
    takes_any_tool: bool = False
    solutions: Sequence[Sequence[Turn]] | None = None
    cases: Sequence[Mapping[str, Any]] = ()
    rollouts: Sequence[Mapping[str, Any]] = ()
    reverify_mode: str = "unknown"
    full_reward: float = 1.0
    no_reward: float = 0.0
    needs_model: str | None = None
    """The model server that the verifier asks, if none was given."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Checks that the author has decided against, with the reasons."""
    row_problems: Sequence[str] = ()

    @property
    def tools(self) -> list[str]:
        """The tools that the rows offer."""
        return list_tools(self.rows)


def list_tools(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tools that `rows` offer."""
    offered = (tool for row in rows for tool in row["responses_create_params"].get("tools") or ())
    return sorted({str(tool["name"]) for tool in offered if tool.get("type") == "function"})


async def check(subject: Subject) -> AsyncIterator[Check]:
    """Yield all checks, one after the other."""
    known = _Known(subject)
    for name, run in (
        ("example rows", known.check_example_rows),
        ("tools", known.check_tools),
        ("empty reply", known.check_empty_reply),
        ("gold answers", known.check_gold_answers),
        ("deterministic", known.check_determinism),
        ("sessions", known.check_sessions),
        ("odd replies", known.check_odd_replies),
        ("malformed bodies", known.check_malformed_bodies),
        ("recorded rollouts", known.check_recorded_rollouts),
        ("event loop", known.check_event_loop),
    ):
        key = name.replace(" ", "_")
        if key in subject.waived:
            yield Check(name, "skipped", f"waived by its config: {subject.waived[key]}")
            continue
        status, about = await run()
        yield Check(name, status, about)


Outcome = tuple[Status, str]


class _Known:
    """The checks, and what earlier ones have found out for later ones."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._table = subject.table
        self._gold: list[Sequence[Turn]] | None = None
        self._serial: list[Played] | None = None
        self._silent: Sequence[Played] = ()

    async def check_example_rows(self) -> Outcome:
        """Check that there are rows, that they are tasks, and that the server accepts them."""
        subject = self._subject
        if subject.row_problems:
            return "failed", _list_first(subject.row_problems)
        if not subject.rows:
            return "skipped", f"no example rows in {subject.rows_from}"
        if not subject.needs_model:
            self._silent = await asyncio.gather(*(self._table.play(row, []) for row in subject.rows))
            refused = [(number, one) for number, one in enumerate(self._silent, 1) if one.answer.status in (400, 422)]
            if refused:
                return "failed", _list_first([f"row {number}: {one.problem}" for number, one in refused])
        return "passed", f"{len(subject.rows)} rows in {subject.rows_from}"

    async def check_tools(self) -> Outcome:
        """Check that every tool that the rows offer is a route of the server."""
        subject = self._subject
        if not subject.tools:
            return "skipped", "the rows offer no tools"
        if subject.has_steps or subject.takes_any_tool:
            return "skipped", "the server takes calls of any name"
        absent = [tool for tool in subject.tools if tool not in subject.tools_there]
        if absent:
            return "failed", f"the rows offer {', '.join(absent)}, but the server has no such route"
        return "passed", ", ".join(subject.tools)

    async def check_empty_reply(self) -> Outcome:
        """Check that a reply without any output earns nothing."""
        if why := self._explain_no_verdicts():
            return "skipped", why
        if problems := _list_problems(self._silent):
            return "failed", _list_first(problems)
        rewards = [one.reward for one in self._silent]
        found = sorted({reward for reward in rewards if reward is not None})
        span = f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"
        paid = [str(number) for number, reward in enumerate(rewards, 1) if not self._earns_nothing(reward)]
        if paid:
            return "failed", f"rows {', '.join(paid)}: no output at all has the reward {span}"
        return "passed", f"reward {span}"

    async def check_gold_answers(self) -> Outcome:
        """Check that the right answer has the full reward."""
        subject = self._subject
        if why := self._explain_no_verdicts():
            return "skipped", why
        if subject.solutions is not None:
            self._gold = list(subject.solutions)
            played = await self._play_serially()
            if problems := _list_problems(played):
                return "failed", _list_first(problems)
            source = "solution() of generate_data.py"
            wrong = [f"row {n}: {one.reward}" for n, one in enumerate(played, 1) if not self._is_full(one)]
            if wrong:
                return "failed", f"{source} should have the reward {subject.full_reward:g}: {_list_first(wrong)}"
            return "passed", f"{len(played)} rows by {source}"
        full = [case for case in subject.cases if case.get("kind") == "full_reward"]
        if full:
            wrong = []
            for case in full:
                got = Played(await self._table.post("/verify", case.get("request")))
                if got.reward != (expected := case.get("expected_reward", subject.full_reward)):
                    seen = got.answer.shown if got.reward is None else got.reward
                    wrong.append(f"case {case.get('name')!r}: expected {expected}, got {seen}")
            return _conclude(wrong, f"{len(full)} cases of verifier_cases.jsonl")
        return await self._guess_gold()

    async def check_determinism(self) -> Outcome:
        """Check that the same task with the same reply has the same reward."""
        if why := self._explain_no_verdicts():
            return "skipped", why
        first, second = await self._play_serially(), [await self._table.play(*one) for one in self._list_plays()]
        if problems := _list_problems([*first, *second]):
            return "failed", _list_first(problems)
        pairs = list(enumerate(zip(first, second, strict=True), 1))
        other = [number for number, (a, b) in pairs if a.reward != b.reward]
        if other:
            seen = "; ".join(f"row {n}: {pairs[n - 1][1][0].reward}, then {pairs[n - 1][1][1].reward}" for n in other)
            return "failed", f"the reward differs the second time: {seen}"
        fields = sorted({name for _, (a, b) in pairs for name in _list_differences(a.answer.body, b.answer.body)})
        return "passed", f"{len(pairs)} plays, twice{f'; fields that differ: {chr(44).join(fields)}' if fields else ''}"

    async def check_sessions(self) -> Outcome:
        """Check that sessions played at once go as they do one after the other."""
        if why := self._explain_no_verdicts():
            return "skipped", why
        serial = await self._play_serially()
        plays = self._list_plays()
        mixed = await asyncio.gather(*(self._table.play(*one) for _ in range(COPIES) for one in plays))
        wrong = []
        for position, one in enumerate(mixed):
            alone = serial[position % len(plays)]
            if (one.reward, one.outputs) != (alone.reward, alone.outputs):
                what = one.problem or f"reward {one.reward}, alone {alone.reward}"
                wrong.append(f"play {position % len(plays) + 1}: {what}")
        if wrong:
            return "failed", f"{len(wrong)} of {len(mixed)} sessions at once went differently: {_list_first(wrong)}"
        return "passed", f"{len(mixed)} at once as one by one"

    async def check_odd_replies(self) -> Outcome:
        """Check that whatever a model may reply is scored; a verifier that crashes on it loses the rollout."""
        if why := self._explain_no_verdicts():
            return "skipped", why
        row = self._subject.rows[0]
        problems = []
        odd = make_odd_replies(self._subject.tools)
        for what, items in odd.items():
            played = await self._table.play(row, items)
            if played.problem:
                problems.append(f"{what}: {played.problem}")
        return _conclude(problems, f"{len(odd)} kinds are scored")

    async def check_malformed_bodies(self) -> Outcome:
        """Check that a broken body is the caller's mistake, 4xx, and not a crash of the server."""
        subject = self._subject
        verify = "/step" if subject.has_steps else "/verify"
        bodies: list[tuple[str, Any]] = [(verify, body) for body in NO_BODIES]
        if subject.rows:
            bodies += [(verify, {**subject.rows[0], **bad}) for bad in NO_RESPONSES]
        others = ["/seed_session", *(f"/{tool}" for tool in subject.tools if tool in subject.tools_there)]
        bodies += [(path, body) for path in others for body in NO_BODIES]
        problems = []
        for path, body in bodies:
            answer = await self._table.post(path, body)
            # A tool may make something of a body that is none, but a verifier must not.
            if answer.status >= 500 or (path == verify and answer.status < 400):
                what = f"response {body.get('response')!r}" if isinstance(body, dict) and "response" in body else None
                what = what or ("no response" if isinstance(body, dict) else repr(body))
                problems.append(f"POST {path} with {what} gave {answer.shown}")
        return _conclude(problems, f"{len(bodies)} bodies are refused")

    async def check_recorded_rollouts(self) -> Outcome:
        """Check that the rollouts that the server ships have the rewards that its verifier gives."""
        subject = self._subject
        if not subject.rollouts:
            return "skipped", "there is no data/example_rollouts.jsonl"
        if subject.needs_model:
            return "skipped", self._explain_no_verdicts() or ""
        if subject.reverify_mode != "stateless":
            return "skipped", f"stored responses cannot be scored again (reverify mode {subject.reverify_mode!r})"
        if not subject.rows:
            return "skipped", _NO_ROWS
        wrong = []
        for number, rollout in enumerate(subject.rollouts, 1):
            # A rollout keeps what the verifier answered; what the verifier was asked is in the row.
            task = subject.rows[int(rollout.get("_ng_task_index", number - 1)) % len(subject.rows)]
            played = Played(await self._table.post("/verify", {**task, "response": rollout.get("response")}))
            if played.reward is None or abs(played.reward - float(rollout.get("reward", 0.0))) > _CLOSE:
                now = played.problem or f"now {played.reward}"
                wrong.append(f"rollout {number}: recorded {rollout.get('reward')}, {now}")
        return _conclude(wrong, f"{len(subject.rollouts)} rollouts score as recorded")

    async def check_event_loop(self) -> Outcome:
        """Check that the server still answers others while it verifies many responses."""
        if why := self._explain_no_verdicts():
            return "skipped", why
        plays = self._list_plays()

        async def work() -> None:
            await asyncio.gather(*(self._table.play(*one) for one in plays))

        stall_s = await measure_longest_stall(lambda: self._table.get("/"), work)
        about = f"longest stall {stall_s * 1000:.0f} ms, while {len(plays)} sessions are played"
        if stall_s > STALL_FAILS_S:
            return "failed", f"{about}: verify blocks the event loop.\nhint: move heavy work to a thread or process"
        if stall_s > STALL_WARNS_S:
            return "warned", f"{about}; heavy work belongs in a thread"
        return "passed", about

    # --- shared -------------------------------------------------------------------------------------------------------

    def _explain_no_verdicts(self) -> str | None:
        """Return why nothing can be said about rewards."""
        if self._subject.needs_model:
            return f"its verifier asks the model server {self._subject.needs_model!r}; give one with --model-type"
        return None if self._subject.rows and not self._subject.row_problems else _NO_ROWS

    def _list_plays(self) -> list[tuple[Mapping[str, Any], Sequence[Turn]]]:
        """Return every row with its gold answer, or with silence where none is known."""
        rows = self._subject.rows
        return list(zip(rows, self._gold if self._gold is not None else [[] for _ in rows], strict=True))

    async def _play_serially(self) -> list[Played]:
        if self._serial is None:
            self._serial = [await self._table.play(*one) for one in self._list_plays()]
        return self._serial

    def _earns_nothing(self, reward: float | None) -> bool:
        if reward is None:
            return False
        none = self._subject.no_reward
        full = self._subject.full_reward
        return reward <= none + _CLOSE if full > none else reward >= none - _CLOSE

    def _is_full(self, played: Played) -> bool:
        return played.reward is not None and abs(played.reward - self._subject.full_reward) <= _CLOSE

    async def _guess_gold(self) -> Outcome:
        subject = self._subject
        best: Guess | None = None
        for guess in guess_answers(subject.rows):
            played = [
                await self._table.play(row, [text]) for row, text in zip(subject.rows, guess.replies, strict=True)
            ]
            if all(map(self._is_full, played)):
                self._gold = [[text] for text in guess.replies]
                self._serial = played
                said = guess.form.format(answer="…")
                return "passed", f"{len(played)} rows; the field {guess.field!r}, said as {said}"
            best = best or guess
        reason = "the rows hold no field that is named like an answer"
        if best is not None:
            reason = f"the field {best.field!r}, said in the common ways, does not get the full reward"
        return "skipped", f"{reason}; write `solution(row)` in generate_data.py to have this checked"


# --- results -----------------------------------------------------------------------------------------------------


def _list_problems(played: Sequence[Played]) -> list[str]:
    return [f"row {number}: {one.problem}" for number, one in enumerate(played, 1) if one.problem]


def _list_differences(one: Any, other: Any) -> list[str]:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return []
    return [name for name in {*one, *other} if one.get(name) != other.get(name)]


def _conclude(problems: Sequence[str], fine: str) -> Outcome:
    return ("failed", _list_first(problems)) if problems else ("passed", fine)


def _list_first(problems: Sequence[str]) -> str:
    more = f"\n… and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "\n".join(problems[:_SHOWN]) + more
