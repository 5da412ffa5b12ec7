# SPDX-License-Identifier: Apache-2.0
import asyncio
import threading
from contextlib import suppress

import pytest
from pydantic import ValidationError

from nemo_gym._servers.policy_versions.announcing import Announcement, PolicyVersionRefused, RunVersion, VersionCell
from nemo_gym.errors import GymError

MODEL = {"process_name": "policy", "server_type": "responses_api_models", "url": "http://a"}
AGENT = {"process_name": "agent", "server_type": "responses_api_agents", "url": "http://b"}
WORLD = {"process_name": "world", "server_type": "resources_servers", "url": "http://c"}


def version(number, **fields):
    return Announcement(version=number, **fields)


@pytest.fixture(params=["in memory", "shared by workers"])
def cell(request, tmp_path):
    return VersionCell(None if request.param == "in memory" else tmp_path / "policy-version")


def test_a_cell_is_empty_until_it_is_told_and_then_only_grows(cell):
    assert cell.get() is None
    for number in (0, 3, 3, 7):
        cell.set(version(number))
        assert cell.get() == number
    with pytest.raises(
        PolicyVersionRefused, match=r"(?s)version 6 was refused: version 7 is in force.*hint: .*restart"
    ):
        cell.set(version(6))
    assert cell.get() == 7
    cell.set(version(2, restart=True))
    assert cell.get() == 2


def test_workers_of_one_server_know_what_one_of_them_was_told(tmp_path):
    first, second = VersionCell(tmp_path / "v"), VersionCell(tmp_path / "v")
    first.set(version(5))
    assert second.get() == 5
    assert VersionCell(tmp_path / "v").get() == 5, "one that starts later too"
    with pytest.raises(PolicyVersionRefused):
        second.set(version(4))


def test_of_announcements_that_come_together_the_newest_stays(tmp_path):
    cells = [VersionCell(tmp_path / "v") for _ in range(4)]
    together = threading.Barrier(4)

    def tell(cell, numbers):
        together.wait()
        for number in numbers:
            with suppress(PolicyVersionRefused):
                cell.set(version(number))

    threads = [threading.Thread(target=tell, args=(cell, range(start, 400, 4))) for start, cell in enumerate(cells)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cell.get() for cell in cells] == [399] * 4


@pytest.mark.parametrize("bad", [-1, 1.5, "7", True, None, 2**63])
def test_a_version_is_a_whole_number(bad):
    with pytest.raises(ValidationError):
        Announcement(version=bad)


# --- the run ----------------------------------------------------------------------------------------------------------


class Told:
    """Stands in for the servers: remembers who was told what, and fails for those it was asked to."""

    def __init__(self, *failing):
        self.said, self.failing = [], failing

    async def __call__(self, instances, announced):
        names = [server["process_name"] for server in instances]
        self.said.append((announced.version, names))
        await asyncio.sleep(0)
        return {name: "it does not answer" for name in names if name in self.failing}


async def test_models_and_agents_are_told_and_whoever_asked_to_be():
    told, heard, relayed = Told(), [], []

    async def relay(announced):
        relayed.append(announced.version)
        return {"policy of worker-1": "lost"}

    run = RunVersion(told)
    with run.relay_to(relay) as before, run.listen_with(lambda number, restart: heard.append((number, restart))):
        assert before is None
        problems = await run.announce(version(1), [MODEL, AGENT, WORLD])
    assert problems == {"policy of worker-1": "lost"}
    await run.announce(version(2), [MODEL, AGENT, WORLD])
    assert told.said == [(1, ["policy", "agent"]), (2, ["policy", "agent"])]
    assert (heard, relayed) == ([(1, False)], [1])


async def test_a_server_that_could_not_be_told_is_named_and_told_when_the_version_is_announced_again():
    told = Told("policy")
    run = RunVersion(told)
    assert await run.announce(version(1), [MODEL]) == {"policy": "it does not answer"}
    assert run.version == 1
    told.failing = ()
    assert await run.announce(version(1), [MODEL]) == {}


async def test_announcements_that_come_together_take_effect_one_after_the_other():
    told = Told()
    run = RunVersion(told)
    numbers = [3, 1, 4, 1, 5, 9, 2, 6]
    results = await asyncio.gather(*(run.announce(version(n), [MODEL]) for n in numbers), return_exceptions=True)
    said = [number for number, _ in told.said]
    assert said == sorted(said), "no server is told to go back"
    assert run.version == 9
    refused = [
        number for number, result in zip(numbers, results, strict=True) if isinstance(result, PolicyVersionRefused)
    ]
    assert refused == [1, 1, 2, 6]


async def test_only_the_servers_that_are_named_are_told():
    told = Told()
    run = RunVersion(told)
    await run.announce(version(1, servers=["policy"]), [MODEL, AGENT])
    assert told.said == [(1, ["policy"])]
    with pytest.raises(GymError, match=r"(?s)called 'judge'.*hint: its servers are agent, policy"):
        await run.announce(version(2, servers=["judge"]), [MODEL, AGENT])


async def test_a_replica_that_was_restarted_is_told_the_version_in_force():
    told = Told()
    run = RunVersion(told)
    run.note_instances([MODEL])
    await run.announce(version(4), [{**MODEL, "replica": "0-a"}])
    run.note_instances([{**MODEL, "replica": "0-a"}, {**MODEL, "replica": "1-a", "url": "http://d"}])
    run.note_instances([{**MODEL, "replica": "0-b"}])
    await asyncio.gather(*map(asyncio.wrap_future, run._late))
    assert told.said == [(4, ["policy"])] * 3
    assert not run._late


async def test_who_waits_for_another_version_is_woken_by_it():
    run = RunVersion(Told())
    waiting = asyncio.create_task(run.wait_for_other_than(None, 60))
    await asyncio.sleep(0)
    await run.announce(version(3), [])
    assert await waiting == 3
    assert await run.wait_for_other_than(None, 60) == 3, "no wait where it is another one already"
    assert await run.wait_for_other_than(3, 0.01) == 3
