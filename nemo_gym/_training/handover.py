# SPDX-License-Identifier: Apache-2.0
"""Prepare the tokens of a result row for a trainer: each trainable item extends all tokens before it, or is set aside.

Trainers such as NeMo RL walk through `response.output` and expect the tokens so far at the start of the next
`prompt_token_ids`. If they are, a row stays unchanged. If an agent's history was retokenized, the generated ids are put
back; if the history was edited, only the branch with the last turn keeps its tokens. What was changed or set aside is
kept under `_ng_token_drift`, so that nothing is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nemo_gym._training.alignment import Branch, Decode, Turn, classify, count_common_prefix, join_turns
from nemo_gym._training.capture.call_records import list_answer_items
from nemo_gym._util.json_shapes import as_int, as_list, as_mapping
from nemo_gym._util.row_keys import MASK_SAMPLE_KEY, RESPONSE_KEY_NAME, TOKEN_CAPTURE_KEY, TOKEN_DRIFT_KEY
from nemo_gym._wire.schema.tokens import ALL_TOKEN_FIELDS, REQUIRED_TOKEN_FIELDS

_PROMPT, _GENERATED, _LOG_PROBS = REQUIRED_TOKEN_FIELDS

_WHOLE = frozenset({int})  # a bool is an int to Python, but no token
_NUMERIC = frozenset({int, float})
_ROUNDING_ERROR = 1e-6  # how far above 0 the log-prob of a certain token may come out


def read_turn(item: Mapping[str, Any], source: str, *, is_checked: bool = False, **known: Any) -> Turn | str | None:
    """Return the turn whose tokens `item` carries, or why they cannot be used; None if it carries none.

    `is_checked` means that its tokens were validated before.
    """
    prompt_ids: Any = item.get(_PROMPT)
    generated_ids: Any = item.get(_GENERATED)
    if prompt_ids is None and generated_ids is None:
        return None
    log_probs: Any = item.get(_LOG_PROBS)
    if not is_checked and (problem := _find_problem(prompt_ids, generated_ids, log_probs)):
        return f"has {problem}"
    return Turn(prompt_ids, generated_ids, log_probs, source, **known)


def _find_problem(prompt_ids: Any, generated_ids: Any, log_probs: Any) -> str | None:
    """Return what is wrong with the tokens of a turn; None if nothing is."""
    if not (isinstance(prompt_ids, list) and isinstance(generated_ids, list) and isinstance(log_probs, list)):
        return "only some of its tokens"
    if len(generated_ids) != len(log_probs):
        return f"{len(generated_ids)} tokens, but {len(log_probs)} log-probs"
    for ids in (prompt_ids, generated_ids):
        if not _WHOLE.issuperset(map(type, ids)):
            return "token ids that are not whole numbers"
        if ids and min(ids) < 0:
            return f"a negative token id, {min(ids)}"
    if not _NUMERIC.issuperset(map(type, log_probs)):
        return "log-probs that are not numbers"
    if log_probs and max(log_probs) > _ROUNDING_ERROR:
        return f"a positive log-prob, {max(log_probs):g}"
    return None


def carries_turn(item: Mapping[str, Any]) -> bool:
    """Return whether an item says anything about its tokens."""
    return _PROMPT in item or _GENERATED in item


def carries_tokens(row: Mapping[str, Any]) -> bool:
    """Return whether there is anything to hand over. Every rollout asks, so it must be cheap."""
    output = as_list(as_mapping(row.get(RESPONSE_KEY_NAME)).get("output"))
    return any(isinstance(item, dict) and carries_turn(item) for item in output)


def is_clean(row: Mapping[str, Any]) -> bool:
    """Return whether a trainer can use the row unchanged."""
    so_far: list[int] = []
    output = list_answer_items(row.get(RESPONSE_KEY_NAME))
    for item in output:
        turn = read_turn(item, "response")
        if isinstance(turn, str) or (turn is not None and turn.prompt_ids[: len(so_far)] != so_far):
            return False
        if turn is not None:
            so_far = turn.prompt_ids + turn.generated_ids
    return not count_untracked_turns(output)


def hand_over(row: dict[str, Any], decode: Decode | None = None) -> None:
    """Change the tokens of `row` so that a trainer can use them, and note the changes under `_ng_token_drift`.

    `decode` is needed to tell a retokenized history from an edited one.
    """
    if TOKEN_DRIFT_KEY in row or is_clean(row):
        return
    output = list_answer_items(row[RESPONSE_KEY_NAME])
    read = [(place, read_turn(item, "response")) for place, item in enumerate(output)]
    problems = {place: found for place, found in read if isinstance(found, str)}
    places = [place for place, found in read if isinstance(found, Turn)]
    turns = [found for _, found in read if isinstance(found, Turn)]
    branches = join_turns(turns, decode)
    branch_of = {number: place for place, branch in enumerate(branches) for number in branch.turns}
    main = branch_of.get(len(turns) - 1)
    untracked = count_untracked_turns(output)
    generated = count_generated_tokens(output)
    reread = list(_put_generated_ids_back(branches, turns, [output[place] for place in places]))
    aside = sorted([place for number, place in enumerate(places) if branch_of[number] != main] + list(problems))
    set_aside = []
    for place in aside:
        taken = {name: output[place].pop(name) for name in ALL_TOKEN_FIELDS if name in output[place]}
        set_aside.append({"item": place, **taken})
    delivered = count_generated_tokens(output)
    row[TOKEN_DRIFT_KEY] = {
        "class": classify(branches),
        "turns": len(turns),
        "branches": len(branches),
        "realigned_turns": [one["turn"] for one in reread],
        "untracked_turns": untracked,
        "problems": [f"output item {place} {reason}" for place, reason in problems.items()],
        "branch_of_turn": [branch_of[number] for number in range(len(turns))],
        "reread": reread,
        "set_aside": set_aside,
        "generated_tokens": generated,
        "delivered_tokens": delivered,
    }
    if TOKEN_CAPTURE_KEY in row:
        note_delivered_tokens(row[TOKEN_CAPTURE_KEY], delivered)
    if problems:
        row[MASK_SAMPLE_KEY] = True


def count_generated_tokens(output: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens of the model the items of a response carry."""
    return sum(len(as_list(item.get(_GENERATED))) for item in output)


def note_delivered_tokens(capture: dict[str, Any], delivered: int) -> None:
    """Note how many of the captured tokens reach a trainer that reads only `response.output`."""
    captured = capture.get("generated_tokens_captured")
    capture["generated_tokens_delivered"] = delivered
    capture["delivered_fraction"] = round(delivered / captured, 4) if captured else 0.0


def restore_items(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a row's response with all their tokens, including those that were set aside."""
    set_aside = as_list(as_mapping(row.get(TOKEN_DRIFT_KEY)).get("set_aside"))
    aside = {as_int(entry.get("item")): entry for entry in map(as_mapping, set_aside)}
    items = list_answer_items(row.get(RESPONSE_KEY_NAME))
    for place, item in enumerate(items):
        if place in aside:
            kept = {name: aside[place][name] for name in ALL_TOKEN_FIELDS if name in aside[place]}
            items[place] = {**item, **kept}
    return items


def rejoin_turns(
    row: Mapping[str, Any], turns: Sequence[Turn], decode: Decode | None = None
) -> tuple[list[Turn], list[Branch]]:
    """Return the turns that `restore_items` found as the engine read them, and their branches.

    The branches are those of the handover, unless it had no `decode` and there is one now.
    """
    mark = as_mapping(row.get(TOKEN_DRIFT_KEY))
    reread = _find_replaced_prompts(mark)
    restored = list(turns)
    for number in reread.keys() & range(len(turns)):
        prompt_ids = _restore_prompt(turns[number].prompt_ids, reread[number])
        restored[number] = replace(turns[number], prompt_ids=prompt_ids)
    places = as_list(mark.get("branch_of_turn"))
    if decode is not None or len(places) != len(turns) or any(as_int(place) is None for place in places):
        return restored, join_turns(restored, decode)
    branches = join_turns(turns, places=places)
    for branch in branches:
        branch.realigned_turns = [number for number in branch.turns if number in reread]
    return restored, branches


def restore_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as it was before the handover: every item with its tokens, as the engine read and wrote them."""
    items = [dict(item) for item in restore_items(row)]
    carriers = [item for item in items if isinstance(read_turn(item, "response", is_checked=True), Turn)]
    for number, entry in _find_replaced_prompts(as_mapping(row.get(TOKEN_DRIFT_KEY))).items():
        if number < len(carriers):
            carriers[number][_PROMPT] = _restore_prompt(carriers[number][_PROMPT], entry)
    bare = {name: value for name, value in row.items() if name != TOKEN_DRIFT_KEY}
    return {**bare, RESPONSE_KEY_NAME: {**as_mapping(row.get(RESPONSE_KEY_NAME)), "output": items}}


def count_untracked_turns(output: Sequence[Mapping[str, Any]]) -> int:
    """Count the turns in which the model said something, but whose tokens are missing.

    A turn lasts until the environment answers. An empty reply, as to a conversation that has outgrown the model's
    context, has no tokens to lose.
    """
    count = 0
    said = False
    has_tokens = False
    for item in [*output, {"type": "end_output"}]:
        kind = str(item.get("type") or "message")
        if kind.endswith(("_output", "_response")) or (kind == "message" and item.get("role") != "assistant"):
            count += said and not has_tokens
            said = False
            has_tokens = False
            continue
        said = said or any(item.get(name) for name in ("name", "summary")) or _has_text(item.get("content"))
        has_tokens = has_tokens or item.get(_PROMPT) is not None or item.get(_GENERATED) is not None
    return count


def _has_text(content: Any) -> bool:
    if not isinstance(content, list):
        return bool(content)
    return any(part.get("text") or part.get("refusal") for part in map(as_mapping, content))


def _put_generated_ids_back(
    branches: Sequence[Branch], turns: Sequence[Turn], items: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Let every realigned turn begin with the ids of its branch; yield what the engine had read in their place."""
    for branch in branches:
        ids = branch.ids
        so_far = 0
        for number, after_prompt in zip(branch.turns, branch.starts, strict=True):
            start = len(branch.prompt_ids) + after_prompt
            if number in branch.realigned_turns:
                read = turns[number].prompt_ids
                prompt_ids = ids[:start]
                common = count_common_prefix(read, prompt_ids)
                end = len(read) - (start - so_far)
                yield {"turn": number, "start": common, "stop": so_far, "ids": read[common:end]}
                items[number][_PROMPT] = prompt_ids
            so_far = start + len(turns[number].generated_ids)


def _find_replaced_prompts(mark: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return, by turn, what the engine had read in place of the restored ids."""
    return {
        entry["turn"]: entry
        for entry in map(as_mapping, as_list(mark.get("reread")))
        if isinstance(entry.get("ids"), list)
        and all(as_int(entry.get(name)) is not None for name in ("turn", "start", "stop"))
    }


def _restore_prompt(prompt_ids: list[int], entry: Mapping[str, Any]) -> list[int]:
    read: list[int] = prompt_ids[: entry["start"]] + entry["ids"] + prompt_ids[entry["stop"] :]
    return read
