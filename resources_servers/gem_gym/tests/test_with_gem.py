# SPDX-License-Identifier: Apache-2.0
"""GEM itself, in the virtual environment that the launcher builds: what it gives alone, it gives through the server."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.testing import reply
from tests.support.gym_process import gym_env_start

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(1800)]

FOLDER = Path(__file__).parents[1]
PYTHON = FOLDER / ".venv" / "bin" / "python"
GYM = (sys.executable, "-m", "nemo_gym.cli.main")
AT_ONCE = 16
# The words of some tasks come out of sets, whose order is another one in each process unless this is fixed.
FIXED = {"PYTHONHASHSEED": "0"}
WORDS = ("cat", "dog", "sun", "table", "green", "house", "letter", "morning", "picture", "station", "north", "bird")
DOUBLE = "```python\nprint(2 * int(input()))\n```"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for what environments load: a corpus of words, and small datasets."""
    root = tmp_path_factory.mktemp("data")
    (root / "corpora" / "words").mkdir(parents=True)
    for name in ("en", "en-basic"):
        (root / "corpora" / "words" / name).write_text("\n".join(WORDS) + "\n")
    rows = {
        "sums": [{"problem": "What is 20 + 22?", "answer": "42"}],
        "capitals": [{"problem": "What is the capital of France?", "answer": ["Paris"]}],
        "taco": [
            {"problem": "Double it.", "tests": json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]})}
        ],
    }
    for name, lines in rows.items():
        (root / name).mkdir()
        (root / name / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


@pytest.fixture(scope="module")
def server(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, which `gym env start` has started."""
    cwd = tmp_path_factory.mktemp("gym")
    environment = {**FIXED, "NLTK_DATA": str(data), "HF_HUB_OFFLINE": "1", "HF_HOME": str(cwd / "hub")}
    with gym_env_start(
        "--resources-server", "gem_gym", "++head_server.port=0", cwd=cwd, environment=environment
    ) as gym:
        ((address,),) = [re.findall(r"\] gem_gym \(\S+\) (http\S+)", gym.output)]
        yield address
        gym.stop()


def play_alone(tmp_path: Path, data: Path, **what: Any) -> list[dict[str, Any]]:
    """Return episodes that GEM has played without us."""
    file = tmp_path / "episodes.jsonl"
    subprocess.run(
        [PYTHON, "-W", "ignore", FOLDER / "tests" / "reference.py", json.dumps(what), file],
        env={**FIXED, "NLTK_DATA": str(data), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return [json.loads(line) for line in file.read_text().splitlines()]


class Session:
    """One episode with the server."""

    def __init__(self, address: str, task: dict[str, Any], http: aiohttp.ClientSession) -> None:
        self._address, self._http = address, http
        self._task = {"responses_create_params": {"input": "Play."}, **task}

    async def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        async with self._http.post(f"{self._address}{path}", json={**self._task, **fields}) as answer:
            return answer.status, await answer.json()

    async def play(self, actions: list[str]) -> list[dict[str, Any]]:
        """Return what a reset and the steps gave."""
        said = [{}, *({"response": reply(action).model_dump()} for action in actions)]
        results = []
        for number, fields in enumerate(said):
            status, result = await self.post("/step" if number else "/reset", **fields)
            assert status == 200, (self._task, result)
            results.append(result)
        return results


async def play_served(address: str, task: dict[str, Any], actions: list[str]) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        return await Session(address, task, http).play(actions)


async def compare(address: str, episodes: list[dict[str, Any]], **args: Any) -> None:
    """Play all episodes again through the server, many at once, and expect the same observations and rewards."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def replay(episode: dict[str, Any]) -> tuple[Any, Any]:
        task = {"environment_id": episode["id"], "seed": episode["seed"], **args}
        async with slots:
            begun, *steps = await play_served(address, task, episode["actions"])
        name = [episode["id"], episode["seed"], episode["actions"]]
        shown = [*name, begun["observation"], [_read_step(step) for step in steps]]
        return shown, [*name, _join(episode["first"]), [_expect_step(step) for step in episode["steps"]]]

    for shown, expected in await asyncio.gather(*map(replay, episodes)):
        assert shown == expected


def _join(seen: list[Any]) -> str:
    observation, suffix = seen
    return f"{observation.rstrip()}\n{suffix}" if suffix else observation


def _read_step(step: dict[str, Any]) -> Any:
    return step["reward"], step["terminated"], step["truncated"], step["observation"]


def _expect_step(step: dict[str, Any]) -> Any:
    if "raised" in step:  # a scorer that breaks down on a reply: the reply is worth nothing
        return 0.0, True, True, "<｜TERMINAL_STATE｜>"
    return step["reward"], *step["end"], _join(step["seen"])


async def test_every_game_and_reasoning_task_gives_exactly_the_rewards_of_the_library(server, data, tmp_path):
    episodes = play_alone(tmp_path, data, ids=None, seeds=[0, 1])
    assert len({episode["id"] for episode in episodes}) == 131
    assert {len(episode["steps"]) for episode in episodes} >= {1, 50}
    assert len({step.get("reward") for episode in episodes for step in episode["steps"]}) > 30
    await compare(server, episodes)


async def test_word_games_are_played_where_their_words_are(server, data, tmp_path):
    ids = [f"game:{name}-v0-{level}" for name in ("Wordle", "Hangman", "WordSearch") for level in ("easy", "hard")]
    await compare(server, play_alone(tmp_path, data, ids=ids, seeds=[0, 1, 2]))


@pytest.mark.parametrize(
    ("environment_id", "folder", "said", "reward"),
    [
        ("math:GSM8K", "sums", "It is \\boxed{42}.", 1.0),
        ("math:GSM8K", "sums", "\\boxed{\\frac{84}{2}}", 1.0),
        ("math:GSM8K", "sums", "\\boxed{41}", 0.0),
        ("math:GSM8K", "sums", "no idea", 0.0),
        ("math:GSM8K", "sums", "\\boxed{().__class__.__base__.__subclasses__()}", 0.0),
        ("qa:HotpotQA", "capitals", "<answer>paris</answer>", 1.0),
        ("qa:HotpotQA", "capitals", "<answer>Rome</answer>", 0.0),
        ("qa:HotpotQA", "capitals", "Paris", 0.0),
        ("code:Taco8k", "taco", DOUBLE, 1.0),
        ("code:Taco8k", "taco", "```python\nprint(4)\n```", 0.0),
        ("code:Taco8k", "taco", "```python\nwhile True: pass\n```", 0.0),
        ("code:Taco8k", "taco", "I cannot", -0.1),
    ],
)
async def test_environments_with_data_are_played_where_their_data_are(
    server, data, environment_id, folder, said, reward
):
    args = {"dataset_name": str(data / folder), "split": "train", "question_key": "problem"}
    task = {"environment_id": environment_id, "environment_args": args, "seed": 0}
    _, step = await play_served(server, task, [said])
    assert (step["reward"], step["terminated"]) == (reward, True)


async def test_programs_of_a_model_run_apart_from_the_machine(server, data, tmp_path):
    mark = tmp_path / "mark"
    said = f"```python\nopen({str(mark)!r}, 'w').close()\nprint(2 * int(input()))\n```"
    args = {"dataset_name": str(data / "taco")}
    _, step = await play_served(server, {"environment_id": "code:Taco8k", "environment_args": args, "seed": 0}, [said])
    assert not mark.exists()
    assert step["terminated"]


@pytest.mark.parametrize(
    ("environment_id", "told"),
    [
        ("math:Math12K", ["DataUnavailable", "the dataset axon-rl/MATH-12k of the Hugging Face Hub", "hint: "]),
        ("game:GuessTheNumber-v0", ["UnknownEnvironment", "did you mean 'game:GuessTheNumber-v0-"]),
        ("rg:composite", ["UnknownEnvironment", "a mixture of tasks"]),
        (None, ["UnknownEnvironment", "the row names no environment"]),
    ],
)
async def test_an_environment_that_cannot_be_made_is_a_failure_that_says_why(server, environment_id, told):
    async with aiohttp.ClientSession() as http:
        status, body = await Session(server, {"environment_id": environment_id, "seed": 0}, http).post("/reset")
    assert status == 500
    assert all(text in json.dumps(body) for text in told), body


def test_the_catalog_lists_what_can_be_played_and_makes_rows_of_it(server):
    program = """
import json, sys
from resources_servers.gem_gym import catalog
print(json.dumps([catalog.list_environments(), catalog.make_rows("game:Wordle-v0-easy", 3, 5, {}),
    catalog.make_config("game:Wordle-v0-easy"), catalog.make_config("rg:gcd"),
    catalog.make_config("game:Wordle-v0-random")]), file=sys.stderr)
"""
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", program], cwd=PARENT_DIR, capture_output=True, text=True, check=True
    )
    listed, rows, *configs = json.loads(done.stderr.splitlines()[-1])
    described = {each["id"]: each["description"] for each in listed}
    assert len(described) == 171
    assert described["game:GuessTheNumber-v0-easy"] == (
        "Game of several turns (min_number=1, max_number=10, max_turns=4)"
    )
    assert described["game:Wordle-v0-easy"].endswith("; needs network once for the corpus `words` of NLTK")
    assert [row["seed"] for row in rows] == [5, 6, 7]
    assert [config["agent"]["max_steps"] for config in configs] == [15, 1, 100]


def test_a_run_scores_every_row(server, tmp_path):
    replies = "++policy_model.responses_api_models.replay_model={replies: [\\\\boxed\\{7\\}], on_miss: cycle}"
    output = tmp_path / "rollouts.jsonl"
    where = ["--input", str(FOLDER / "data" / "example.jsonl"), "--output", str(output), "++head_server.port=0"]
    model = ["--model-type", "replay_model", replies]
    done = subprocess.run(
        [*GYM, "eval", "run", "--resources-server", "gem_gym", *model, *where, "--json", "--quiet"],
        cwd=PARENT_DIR,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["scored"] == counts["requested"] == 5
    rewards = {row["environment_id"]: row["reward"] for row in map(json.loads, output.read_text().splitlines())}
    assert rewards["game:GuessTheNumber-v0-easy"] == 1.0
    assert rewards["game:TowerofHanoi-v0-easy"] == -0.1
