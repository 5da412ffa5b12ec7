# SPDX-License-Identifier: Apache-2.0
"""What a run that was interrupted still has to do."""

import json
import random
import signal
import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.outcomes import key_of
from nemo_gym._rollouts.resume import ResumeError, can_resume, find_remaining
from nemo_gym._rollouts.run_manifest import Counts, read_manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.jsonl_files import read_rows
from tests.support import warm_start
from tests.support.warm_start import WarmProcess

ALL = [(task, rollout) for task in range(4) for rollout in range(3)]
AS_PLAYED = sorted(ALL, key=lambda key: key[1])


def row(key, **fields):
    return {"_ng_task_index": key[0], "_ng_rollout_index": key[1], "agent_ref": {"name": "a"}, **fields}


def write(path, rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def run_files(tmp_path, done=(), failures=(), plan=ALL):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    write(paths.materialized, [row(key, question="?") for key in plan])
    write(paths.output, [row(key, reward=1) for key in done])
    write(paths.failures, failures)
    return paths


def failed(key, kind="agent", **fields):
    return row(key, _ng_failure_class=kind, _ng_failure={"kind": kind}, **fields)


def keys(rows):
    return [key_of(each) for each in rows]


def test_only_what_is_missing_is_left_all_tasks_once_before_any_again(tmp_path):
    left = find_remaining(run_files(tmp_path, done=[(3, 2), (0, 0)]), 3)
    assert keys(left.read_remaining()) == [key for key in AS_PLAYED if key not in {(3, 2), (0, 0)}]
    assert (left.original, left.done, left.left, left.notices) == (12, 2, 10, ())


def test_a_rollout_that_failed_is_tried_again_and_says_which_attempt_it_is(tmp_path):
    left = find_remaining(run_files(tmp_path, failures=[failed((0, 1)), failed((0, 1)), failed((1, 0))]), 3)
    attempts = {key_of(each): each.get("_ng_attempt_index") for each in left.read_remaining()}
    assert len(attempts) == 12
    assert {key: index for key, index in attempts.items() if index is not None} == {(0, 1): 2, (1, 0): 1}
    assert left.failure_attempts == 3


@pytest.mark.parametrize("cause", ["401", "403", "404", "refused", "unknown host", "TLS"])
def test_a_wrong_key_or_url_uses_up_no_attempt(tmp_path, cause):
    refused = row((0, 1), _ng_failure_class="model_endpoint", _ng_failure={"kind": "model_endpoint", "cause": cause})
    left = find_remaining(run_files(tmp_path, failures=[refused] * 5), 3)
    assert (left.left, left.maxed) == (12, 0)


def test_what_failed_for_good_or_too_often_is_not_tried_again(tmp_path):
    failures = [failed((0, 0), _ng_failure_terminal=True), *[failed((0, 1), "timeout")] * 3, failed((0, 2))]
    left = find_remaining(run_files(tmp_path, failures=failures), 3)
    assert (left.terminal, left.maxed, left.left) == (1, 1, 10)
    assert left.counts == Counts(requested=12, failed=2, not_played=10, by_kind={"agent": 1, "timeout": 1})
    assert not {(0, 0), (0, 1)} & set(keys(left.read_remaining()))
    assert str(left) == (
        "12 rollouts planned: 0 done, 10 left, 1 failed for good, 1 given up after 3 attempts (5 failure attempts)"
    )


def test_a_rollout_that_was_scored_in_the_end_is_done_whatever_happened_before(tmp_path):
    failures = [*[failed((0, 0))] * 5, failed((0, 1), _ng_failure_terminal=True)]
    left = find_remaining(run_files(tmp_path, done=[(0, 0), (0, 1)], failures=failures), 3)
    assert (left.done, left.terminal, left.maxed, dict(left.given_up)) == (2, 0, 0, {})


def test_being_stopped_does_not_use_up_attempts(tmp_path):
    left = find_remaining(run_files(tmp_path, failures=[failed((0, 0), "cancelled")] * 9), 3)
    assert (left.maxed, left.left, left.failure_attempts) == (0, 12, 9)


def test_failures_that_other_tools_wrote_count_too(tmp_path):
    left = find_remaining(run_files(tmp_path, failures=[row((0, 0), _ng_failure_class="judge_failed")]), 1)
    assert dict(left.given_up) == {"judge_failed": 1}


def test_a_rollout_that_is_there_twice_counts_once_with_a_notice(tmp_path):
    left = find_remaining(run_files(tmp_path, done=[(0, 0), (0, 0), (0, 1), (0, 0)]), 3)
    assert left.done == 2
    assert "2 rollouts more than once" in left.notices[0]


def test_a_torn_last_line_is_repaired_with_a_notice_and_its_rollout_played_again(tmp_path):
    paths = run_files(tmp_path, done=[(0, 0)])
    with open(paths.output, "a") as file:
        file.write('{"_ng_task_index": 0, "_ng_rol')
    left = find_remaining(paths, 3)
    assert (left.done, left.left) == (1, 11)
    assert "was cut off" in left.notices[0]
    assert paths.output.read_text().endswith("}\n")


@pytest.mark.parametrize("bad", ["not json", '{"reward": 1}', '{"_ng_task_index": "x", "_ng_rollout_index": 0}'])
def test_damage_in_the_middle_is_an_error_with_file_and_line(tmp_path, bad):
    paths = run_files(tmp_path, done=[(0, 0)])
    paths.output.write_text(paths.output.read_text() + bad + "\n" + json.dumps(row((0, 1))) + "\n")
    before = paths.output.read_bytes()
    with pytest.raises(ResumeError, match=r"r\.jsonl:2: .*\nhint: "):
        find_remaining(paths, 3)
    assert paths.output.read_bytes() == before


def test_rollouts_of_another_run_are_not_mixed_in(tmp_path):
    with pytest.raises(ResumeError, match="1 rollouts that are not in"):
        find_remaining(run_files(tmp_path, done=[(0, 0), (77, 0)]), 3)


def test_a_plan_alone_is_enough_to_resume(tmp_path):
    paths = run_files(tmp_path, failures=[failed((0, 0))])
    paths.output.unlink()
    assert can_resume(paths)
    assert find_remaining(paths, 3).left == 12
    paths.failures.unlink()
    assert keys(find_remaining(paths, 3).read_remaining()) == AS_PLAYED
    assert keys(read_rows(paths.materialized)) == ALL


def test_without_a_plan_there_is_nothing_to_resume_and_results_are_not_thrown_away(tmp_path):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    assert not can_resume(paths)
    paths.output.touch()
    assert not can_resume(paths)
    paths.output.write_text("{}\n")
    with pytest.raises(ResumeError, match="which says what was planned, is missing"):
        can_resume(paths)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_done_given_up_and_left_make_up_the_plan(tmp_path_factory, data):
    done = data.draw(st.lists(st.sampled_from(ALL), unique=True))
    failures = data.draw(st.lists(st.tuples(st.sampled_from(ALL), st.booleans()), max_size=30))
    limit = data.draw(st.integers(1, 4))
    rows = [failed(key, **({"_ng_failure_terminal": True} if terminal else {})) for key, terminal in failures]
    left = find_remaining(run_files(tmp_path_factory.mktemp("run"), done, rows), limit)
    failed_keys = [key for key, _ in failures]
    gone = {key for key, terminal in failures if terminal or failed_keys.count(key) >= limit} - set(done)
    assert keys(left.read_remaining()) == [key for key in AS_PLAYED if key not in gone and key not in done]
    assert left.original == left.done + left.terminal + left.maxed + left.left == 12
    assert left.terminal + left.maxed == len(gone) == sum(left.given_up.values())


PLAYER = """
import random, signal, sys
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.run_manifest import InputIdentity, Manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._rollouts.resume import find_remaining
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._transport.failures import Failure

paths, chance, tell_after = RunPaths.of(sys.argv[1]), random.Random(sys.argv[2]), int(sys.argv[3])
left = find_remaining(paths, 1000)
manifest = Manifest(counts=left.counts, input=InputIdentity(path="i", size_bytes=0, sha256=""))
with Journal.resume(paths, manifest, sync_every_s=0.01) as journal:
    for number, row in enumerate(left.read_remaining()):
        if number == tell_after:
            print("kill me", flush=True)
        if tell_after >= 0 and chance.random() < 0.7:
            journal.record(Failed(row, Failure("agent", "/run", True, "x" * 500), 1, 0.0))
        else:
            journal.record(Scored(row, {**row, "reward": 1.0, "text": "y" * chance.randrange(20_000)}, 1, 0.0))
    if tell_after >= 0:
        signal.pause()
"""


@pytest.mark.thorough
def test_a_run_that_is_killed_again_and_again_ends_with_exactly_its_plan(tmp_path):
    plan = [(task, rollout) for task in range(1500) for rollout in range(2)]
    paths = run_files(tmp_path, plan=plan)
    for seed in range(5):
        arguments = [str(paths.output), str(seed), str(random.Random(seed).randrange(50))]
        player = WarmProcess(arguments, cwd=tmp_path, program=PLAYER, stdout=subprocess.PIPE)
        with player.stdout:
            assert player.stdout.readline() == "kill me\n"
            player.kill()
            assert player.wait(300) == -signal.SIGKILL
        assert find_remaining(paths, 1000).left > 0
    done = warm_start.run([str(paths.output), "5", "-1"], cwd=tmp_path, program=PLAYER, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [key_of(json.loads(line)) for line in paths.output.read_text().splitlines()]
    assert sorted(found) == plan
    assert read_manifest(paths.manifest).counts == Counts(requested=3000, scored=3000)
