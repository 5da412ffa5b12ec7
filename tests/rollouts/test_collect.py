# SPDX-License-Identifier: Apache-2.0
"""A run is planned anew, gone on with, or made of rows from elsewhere; its files say which, and what is left."""

import json

import pytest

from nemo_gym._rollouts.collect import CollectSettings, RunIdentity, collect, plan_or_resume, take_over_plan
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.expand import ExpandSettings
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.outcomes import Failed, Scored, key_of, pick_carried_fields
from nemo_gym._rollouts.resume import ResumeError
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._transport.failures import Failure
from nemo_gym.errors import GymError

AGENT = {"name": "a"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [{"responses_create_params": {"input": f"task {task}"}, "agent_ref": AGENT} for task in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def paths(tmp_path):
    return RunPaths.of(tmp_path / "r.jsonl")


def plan(paths, source, *, resume=False, repeats=2, identity=None, **more):
    identity = identity or RunIdentity(str(source), {"num_repeats": repeats}, {"a": 1})
    settings = ExpandSettings(repeats=repeats)
    return plan_or_resume(paths, identity, lambda: settings, resume=resume, max_attempts=2, **more)


async def play(run, *, fail=(), stop_after=None):
    """Play what a run has left: rows in `fail` fail, and after `stop_after` outcomes the run is stopped."""
    control, ended = RunControl(), []

    async def play_row(row, on_retry):
        if key_of(row) in fail:
            return Failed(row, Failure("verifier", "/verify", True, "no verdict"), 1, 0.1)
        return Scored(row, {"reward": 1.0, **pick_carried_fields(row)}, 1, 0.1)

    def note(outcome):
        ended.append(outcome)
        if stop_after is not None and len(ended) == stop_after:
            control.request_stop()

    with run.open_journal() as journal:
        return await collect(run.rows, play_row, journal, FixedLimit(1), control, CollectSettings(), note)


def manifest(paths):
    return json.loads(paths.manifest.read_text())


def test_a_plan_touches_nothing_of_the_run_before_until_its_journal_is_opened(paths, source):
    paths.output.write_text("an earlier run\n")
    run = plan(paths, source)
    assert paths.output.read_text() == "an earlier run\n"
    assert (run.left, run.before, run.is_resumed) == (6, 0, False)
    assert run.plan.rollouts == 6
    with run.open_journal():
        assert paths.output.read_text() == ""
        assert [key_of(row) for row in run.rows] == [(task, index) for index in (0, 1) for task in range(3)]


def test_the_first_rows_can_be_looked_at_without_being_handed_out(paths, source):
    run = plan(paths, source)
    with run.open_journal():
        first = run.peek(2)
        assert [key_of(row) for row in first] == [(0, 0), (1, 0)]
        assert len([*run.rows]) == 6


async def test_a_resumed_run_plays_what_is_left_and_what_may_be_tried_again(paths, source):
    counts = await play(plan(paths, source), fail=[(1, 0)], stop_after=4)
    assert (counts.scored, counts.failed, counts.not_played) == (3, 1, 2)
    assert manifest(paths)["status"] == "interrupted"
    notices, results = [], []
    run = plan(paths, source, resume=True, notice=notices.append, on_result=results.append)
    assert (run.left, run.before, run.is_resumed, run.plan) == (3, 3, True, None)
    assert "3 done, 3 left" in notices[-1]
    assert len(results) == 3
    counts = await play(run)
    assert (counts.scored, counts.failed, counts.not_played) == (6, 0, 0)
    assert manifest(paths)["status"] == "finished"


async def test_a_rollout_that_failed_as_often_as_it_may_is_left_alone(paths, source):
    for _ in range(2):
        await play(plan(paths, source, resume=True), fail=[(1, 0)])
    run = plan(paths, source, resume=True)
    assert run.left == 0
    assert run.manifest.counts.by_kind == {"verifier": 1}


def test_where_there_is_nothing_to_resume_a_run_begins_and_says_so(paths, source):
    notices = []
    run = plan(paths, source, resume=True, notice=notices.append)
    assert (run.left, run.is_resumed) == (6, False)
    assert "nothing to resume" in notices[0]


@pytest.mark.parametrize(
    "identity",
    [
        lambda source: RunIdentity(str(source), {"num_repeats": 3}, {"a": 1}),
        lambda source: RunIdentity(str(source), {"num_repeats": 2}, {"a": 2}),
    ],
    ids=["settings", "config"],
)
async def test_a_different_run_is_not_resumed(paths, source, identity):
    await play(plan(paths, source), stop_after=2)
    before = paths.output.read_bytes()
    with pytest.raises(ResumeError, match=r"belongs to a different run(.|\n)*hint:"):
        plan(paths, source, resume=True, identity=identity(source))
    assert paths.output.read_bytes() == before


async def test_a_config_that_is_not_known_is_not_compared_and_stays_in_the_manifest(paths, source):
    await play(plan(paths, source), stop_after=2)
    run = plan(paths, source, resume=True, identity=RunIdentity(str(source), {"num_repeats": 2}))
    assert run.manifest.config == {"a": 1}


def test_a_plan_with_bad_rows_leaves_no_file(paths, source, tmp_path):
    source.write_text('{"no": "params"}\n')
    with pytest.raises(GymError, match=r"tasks\.jsonl"):
        plan(paths, source)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


# --- rows from elsewhere ----------------------------------------------------------------------------------------------


def stored(task):
    return {"agent_ref": AGENT, "response": {}, "_ng_task_index": task, "_ng_rollout_index": 0}


async def test_rows_from_elsewhere_become_a_run_with_files_of_its_own(paths, source):
    rows, planned = (stored(task) for task in range(2)), [stored(task) for task in range(2)]
    run = take_over_plan(paths, source, rows, left=2, done=0, planned=planned)
    assert (run.left, run.before, run.is_resumed) == (2, 0, False)
    counts = await play(run)
    assert (counts.requested, counts.scored) == (2, 2)
    assert len(paths.materialized.read_text().splitlines()) == 2
    assert manifest(paths)["status"] == "finished"


async def test_rows_from_elsewhere_are_added_to_files_that_are_there(paths, source):
    await play(take_over_plan(paths, source, iter([stored(0)]), left=1, done=0, planned=[stored(0), stored(1)]))
    run = take_over_plan(paths, source, iter([stored(1)]), left=1, done=1, planned=None)
    assert (run.left, run.before, run.is_resumed) == (1, 1, True)
    counts = await play(run)
    assert (counts.requested, counts.scored) == (2, 2)
    assert [json.loads(line)["_ng_task_index"] for line in paths.output.read_text().splitlines()] == [0, 1]


async def test_a_run_of_rows_from_elsewhere_that_is_stopped_says_interrupted(paths, source):
    rows = [stored(task) for task in range(4)]
    counts = await play(take_over_plan(paths, source, iter(rows), left=4, done=0, planned=rows), stop_after=2)
    assert (counts.scored, counts.not_played) == (2, 2)
    assert manifest(paths)["status"] == "interrupted"


async def test_a_run_whose_materialized_inputs_were_edited_is_not_resumed(paths, source):
    await play(plan(paths, source), stop_after=2)
    kept = paths.materialized.read_bytes()
    paths.materialized.write_bytes(kept.replace(b"task 2", b"task 9"))
    with pytest.raises(ResumeError, match=r"r_materialized_inputs\.jsonl has changed since the run began(.|\n)*hint:"):
        plan(paths, source, resume=True)
    paths.materialized.write_bytes(kept)
    assert plan(paths, source, resume=True).left == 4


async def test_a_run_of_a_version_that_kept_no_digest_of_its_plan_is_resumed(paths, source):
    await play(plan(paths, source), stop_after=2)
    paths.manifest.write_text(json.dumps({**manifest(paths), "plan_sha256": None}))
    assert plan(paths, source, resume=True).left == 4
    assert manifest(paths)["plan_sha256"] is None, "nothing is written before the journal is opened"
