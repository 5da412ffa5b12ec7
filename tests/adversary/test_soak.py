# SPDX-License-Identifier: Apache-2.0
"""Half an hour of everything that can go wrong, in 16 environments: nothing lost, nothing false, nothing left.

SOAK_SEED=7 SOAK_MINUTES=3 pytest tests/adversary/test_soak.py -m exhaustive -n 0 -s
"""

import os
import random
import time

import psutil
import pytest

from tests.adversary.soak import (
    DEADLINE_S,
    DISTURBANCES,
    ENVIRONMENTS,
    JUDGE_SAYS,
    Place,
    Run,
    draw_faults,
    make_tasks,
    small_disk,
    wait_for_rows,
)
from tests.support.eval_runs import fake_endpoint
from tests.support.small_servers import free_port

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
SEED = int(os.environ.get("SOAK_SEED", "20261116"))
REPEATS, CONCURRENCY = 3, 24
MOST_GROWTH = 1.25
"""Of the memory of idle servers, from the first third of the time to the last."""


@pytest.mark.exhaustive
@pytest.mark.timeout(MINUTES * 60 + 1800)
@pytest.mark.fault(
    place="The whole",
    fault="30 minutes of random faults: endpoint, killed servers and runs, signals, full disks, in 16 environments",
    outcome="Every rollout is scored once with its true reward; no process, file, descriptor or memory is left.",
)
def test_a_long_time_of_random_faults_loses_nothing_scores_nothing_falsely_and_leaves_nothing(tmp_path):
    tasks, dice = make_tasks(), random.Random(SEED)
    with fake_endpoint() as endpoint:
        endpoint.set(scripts=tasks.scripts, answer=JUDGE_SAYS)
        rewards = play_calmly(tasks, Place(tmp_path / "calm", endpoint, f"{SEED}-calm"))
        standing = Place(tmp_path / "standing", endpoint, f"{SEED}-standing")
        head_port = free_port()
        servers = [word for name in ENVIRONMENTS for word in ("--resources-server", name)]
        process = standing.start("env", "start", *servers, f"++head_server.port={head_port}", log=tmp_path / "servers")
        try:
            wait_until_ready(process, tmp_path / "servers")
            sizes = play_rounds(tasks, rewards, dice, tmp_path, standing, head_port)
            assert process.poll() is None, (tmp_path / "servers").read_text()[-3000:]
        finally:
            process.terminate()
            process.wait(300)
        standing.assert_nothing_left()
    print(f"memory and descriptors of the idle servers: {sizes}")
    third = len(sizes) // 3
    # Connections stay open for a while after a round, so that numbers go up and down.
    most_early, least_late = map(max, zip(*sizes[:third], strict=True)), map(min, zip(*sizes[-third:], strict=True))
    (early_bytes, early_files), (late_bytes, late_files) = most_early, least_late
    assert late_bytes <= MOST_GROWTH * early_bytes
    # A sandbox that is free stays for the next rollout, so there may come to be one for each that is played at a time.
    assert late_files <= early_files + CONCURRENCY


def play_calmly(tasks, place):
    """Return the reward of every task in a run that nothing disturbs."""
    numbers = tasks.write(place.folder / "tasks.jsonl", ENVIRONMENTS)
    run = make_run(place, ENVIRONMENTS, numbers, 1, [f"++head_server.port={free_port()}"])
    assert run.finish(run.start()) == 0, run.log.read_text()[-3000:]
    place.assert_nothing_left()
    rewards = dict(run.rewards())
    assert len(rewards) == len(tasks.rows)
    unsolved = {tasks.rows[number]["environment"] for number in rewards if number % 2 and rewards[number] <= 0}
    assert not unsolved, "what is scripted to be solved is rewarded"
    return rewards


def play_rounds(tasks, rewards, dice, folder, standing, head_port):
    """Play disturbed rounds until the time is up; return the size of the standing servers after each."""
    ends_at, sizes, number = time.monotonic() + MINUTES * 60, [], 0
    while time.monotonic() < ends_at:
        number += 1
        place = Place(folder / f"round {number}", standing.endpoint, f"{SEED}-{number}")
        # The servers that are measured get to work at once.
        mode = dice.choice(["inline", "processes", "standing"]) if number > 1 else "standing"
        disturbance = dice.choice([name for name in DISTURBANCES if mode == "processes" or name != "server killed"])
        count = {"inline": dice.randint(1, 16), "processes": dice.randint(1, 3), "standing": 16}[mode]
        chosen = dice.sample(ENVIRONMENTS, k=count)
        numbers = tasks.write(place.folder / "tasks.jsonl", chosen)
        where = {
            "inline": [f"++head_server.port={free_port()}"],
            "processes": [f"++head_server.port={free_port()}", "++default_placement=process"],
            "standing": [f"++head_server.port={head_port}", "--no-serve"],
        }
        with small_disk(place.folder / "disk") as disk:
            run = make_run(place, chosen, numbers, REPEATS, where[mode], disk)
            faults = draw_faults(dice)
            print(f"round {number}: {mode}, {count} environments, {disturbance}, {faults}", flush=True)
            place.endpoint.set(faults=faults, latency_ms=dice.choice([0, 20, 100]), seed=dice.randrange(1 << 30))
            process = run.start(DEADLINE_S)
            wait_for_rows(run, process, dice.randint(0, len(run.requested) // 2))
            if process.poll() is None:
                DISTURBANCES[disturbance](run, process, dice)
            run.assert_accounted(run.finish(process), was_stopped=disturbance not in ("none", "endpoint lost"))
            run.assert_true(rewards)
            place.endpoint.set(faults={}, latency_ms=0)
            # A rollout that met a fault may have failed; without faults all of them are scored.
            code = run.finish(run.start())
            assert code == 0, f"{run.log.read_text()[-3000:]}\n{run.rows('_failures')[-3:]}"
            run.assert_accounted(code)
            run.assert_true(rewards)
            place.assert_nothing_left()
        sizes.append(measure_processes(standing))
    assert number >= 3, "too little time for a soak"
    return sizes


def make_run(place, environments, numbers, repeats, where, disk=None):
    output = (disk or place.folder) / "r.jsonl"
    servers = [] if "--no-serve" in where else [word for n in environments for word in ("--resources-server", n)]
    arguments = [*servers, "-i", str(place.folder / "tasks.jsonl"), "-o", str(output), *where]
    arguments += ["--num-repeats", str(repeats), "--concurrency", str(CONCURRENCY)]
    return Run(place, output, arguments, numbers, repeats, place.folder / "log")


def wait_until_ready(process, log):
    while "servers ready!" not in log.read_text():
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.1)


def measure_processes(place):
    """Return how much memory the processes of a place use, and how many descriptors."""
    found = place.processes()
    files = sum(process.num_fds() for process in found if psutil.pid_exists(process.pid))
    return sum(process.memory_info().rss for process in found), files
