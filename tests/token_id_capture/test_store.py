# SPDX-License-Identifier: Apache-2.0
"""The file store keeps what it is given, and never calls a rollout complete that lacks something."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.token_id_capture import TokenCaptureStore, TokenEntry, clear_token_captures_for_rollouts


def entry(call: str = "mc_1", **fields: Any) -> TokenEntry:
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    return TokenEntry(**{"rollout_id": "1-0", "model_call_id": call, **tokens, **fields})


@pytest.fixture
def store(tmp_path: Path) -> TokenCaptureStore:
    return TokenCaptureStore(tmp_path)


async def test_what_was_put_is_in_the_snapshot(store: TokenCaptureStore):
    await store.begin_call("1-0", "mc_1")
    await store.put(entry(weights_version="7"))
    assert store.path_for("1-0").name == "1-0.tokens.jsonl"
    snapshot = await TokenCaptureStore(store.dir).freeze("1-0")
    assert snapshot.entries == [entry(weights_version="7")]
    assert (snapshot.rollout_id, snapshot.complete, snapshot.incomplete) == ("1-0", True, False)
    assert await store.freeze("1-0") == snapshot, "asking again gives the same"


async def test_tokens_that_come_after_the_freeze_are_refused_and_noted(store: TokenCaptureStore):
    await store.put(entry())
    before = await store.freeze("1-0")
    await store.put(entry("mc_2"))
    after = await store.freeze("1-0")
    assert after.entries == before.entries
    assert after.incomplete_reasons == ["call mc_2: tokens arrived after the rollout was frozen"]


async def test_a_rollout_without_tokens_is_not_complete(store: TokenCaptureStore):
    assert not (await store.freeze("1-0")).complete


async def test_a_call_that_has_not_ended_makes_the_rollout_incomplete(store: TokenCaptureStore):
    for call in ("mc_1", "mc_2", "mc_3"):
        await store.begin_call("1-0", call)
    await store.put(entry("mc_1"))
    await store.mark_incomplete("1-0", "mc_2")
    snapshot = await store.freeze("1-0")
    assert snapshot.incomplete_reasons == ["call mc_2: tokens were lost", "call mc_3: not finished"]


async def test_a_mark_that_is_explained_is_told_once(store: TokenCaptureStore):
    await store.explain_incomplete("1-0", "mc_1", "cancelled")
    await store.mark_incomplete("1-0", "mc_1")
    await store.mark_incomplete("1-0")
    assert (await store.freeze("1-0")).incomplete_reasons == ["call mc_1: cancelled", "tokens were lost"]


async def test_an_empty_marker_counts(store: TokenCaptureStore):
    await store.put(entry())
    (store.dir / "1-0.tokens.incomplete").touch()
    assert (await store.freeze("1-0")).incomplete_reasons == ["unknown"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt_tok', "line 2 of the token file"),
        (b'{"schema_version": 2}\n', "schema version 2"),
        (b'{"rollout_id": 1}\n', "not valid"),
    ],
)
async def test_a_line_that_cannot_be_read_makes_the_rollout_incomplete(
    store: TokenCaptureStore, line: bytes, reason: str
):
    await store.put(entry())
    with store.path_for("1-0").open("ab") as file:
        file.write(line)
    snapshot = await store.freeze("1-0")
    assert (len(snapshot.entries), snapshot.complete) == (1, False)
    assert reason in snapshot.incomplete_reasons[0]


async def test_dropping_a_snapshot_deletes_its_tokens_once(store: TokenCaptureStore):
    await store.begin_call("1-0", "mc_1")
    await store.put(entry())
    taken = await store.freeze("1-0")
    assert await store.drop("1-0", snapshot_id=taken.snapshot_id, version=taken.version) is True
    assert await store.drop("1-0", snapshot_id=taken.snapshot_id, version=taken.version) is False
    assert (await store.freeze("1-0")).entries == []
    assert [path.name for path in store.dir.iterdir()] == ["1-0.tokens.frozen"]


async def test_what_was_added_since_the_snapshot_is_not_dropped(store: TokenCaptureStore):
    await store.put(entry())
    taken = await store.freeze("1-0")
    assert await store.drop("1-0", snapshot_id="another", version=taken.version) is False
    await store.put(entry("mc_2"))
    assert await store.drop("1-0", snapshot_id=taken.snapshot_id, version=taken.version) is False
    assert len((await store.freeze("1-0")).entries) == 1
    assert await store.drop("2-0", snapshot_id="", version=0) is False


async def test_a_rollout_that_is_restarted_takes_tokens_again(store: TokenCaptureStore):
    await store.put(entry("mc_1"))
    first = await store.freeze("1-0")
    await store.restart("1-0")
    await store.put(entry("mc_2"))
    second = await store.freeze("1-0")
    assert [kept.model_call_id for kept in second.entries] == ["mc_2"]
    assert second.snapshot_id != first.snapshot_id


async def test_the_captures_of_rows_are_cleared(store: TokenCaptureStore):
    for rollout in ("0-0", "0-1", "1-0-a2"):
        await store.put(entry(rollout_id=rollout))
        await store.freeze(rollout)
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0},
        {"_ng_task_index": 1, "_ng_rollout_index": 0, "_ng_attempt_index": 2},
        {"no": "index"},
    ]
    clear_token_captures_for_rollouts(rows, [store.dir, store.dir / "absent"])
    assert {path.name.split(".")[0] for path in store.dir.iterdir()} == {"0-1"}
    clear_token_captures_for_rollouts([{"_ng_task_index": 0, "_ng_rollout_index": 1}], str(store.dir))
    assert list(store.dir.iterdir()) == []


async def test_an_id_that_is_no_file_name_is_refused(store: TokenCaptureStore):
    with pytest.raises(ValueError, match="rollout id"):
        await store.put(entry(rollout_id="../x"))
