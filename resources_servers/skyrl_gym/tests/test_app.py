# SPDX-License-Identifier: Apache-2.0
"""SkyRL's environments give the rewards here that they give at home, and what a model writes stays in a sandbox."""

import asyncio
import contextlib
import json
import random
import sqlite3
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from nemo_gym.errors import GymError
from nemo_gym.testing import asked, build_server, reasoning, reply, running
from resources_servers.skyrl_gym import catalog, generate_data
from resources_servers.skyrl_gym.app import SkyrlGymResourcesServer, write_out
from resources_servers.skyrl_gym.tasks import MAKERS, make_row, make_task
from tests.support.server_venvs import server_python
from tests.support.step_sessions import StepSession, served

ORACLE = Path(__file__).with_name("play_with_the_library.py")
THINK = "<think>Hm.</think>"
# What models say that is no solution, by environment.
POOR = {
    "aime": ["Answer: 1000", "", "I do not know", "Answer: \\boxed{"],
    "gsm8k": ["#### 1", "72", "", "#### 1,000.50", "#### #### 5"],
    "gsm8k_multi_turn": ["#### 1", "I think it is 7", ""],
    "lcb": [
        "```python\nprint(0)\n```",
        "no program",
        "```python\nwhile True: pass\n```",
        "```python\ninput(\n```",
        "```python\nimport os; os._exit(0)\n```",
        "```python\nprint(open('/etc/passwd').read())\n```",
    ],
    "text2sql": [
        f"{THINK}<sql>SELECT * FROM products</sql>",
        f"{THINK}<sql>SELECT nothing</sql>",
        f"{THINK}<sql>DELETE FROM products</sql>",
        f"{THINK}<solution>SELECT 1</solution>",
        f"{THINK}<solution>SELECT</solution>",
        "<solution>SELECT 1</solution>",
        "",
    ],
}


# --- without the library ----------------------------------------------------------------------------------------------


def test_rows_are_made_by_seed_and_hold_no_solution_that_a_model_is_shown():
    for env_class in MAKERS:
        rows = [make_row(env_class, seed) for seed in (1, 2, 1)]
        assert rows[0] == rows[2] != rows[1]
        assert make_task(env_class, 1).solution not in rows[0]["responses_create_params"]["input"][0]["content"]


def test_a_reply_is_written_out_with_the_thinking_that_came_apart_from_it():
    assert write_out(reply(reasoning("Hm."), "So: 7")) == "<think>Hm.</think>\nSo: 7"
    assert write_out(reply("<think>Hm.</think>7")) == "<think>Hm.</think>7"
    assert write_out(reply()) == ""


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({}, "hint: rows in SkyRL's format have one"),
        ({"env_class": "search"}, "search_url"),
        ({"env_class": "text2sql"}, "db_path"),
        ({"env_class": "searchcode"}, "no sandbox can contain it"),
    ],
)
async def test_what_the_config_does_not_allow_for_is_a_failure_that_says_what_to_do(task, told):
    async with running(skyrl_gym=SkyrlGymResourcesServer) as client:
        refused = await client.post("skyrl_gym", "/reset", json={"responses_create_params": asked("?"), **task})
    failure = json.loads(refused.headers["x-nemo-gym-failure"])
    assert failure["kind"] == "tool_server"
    assert told in failure["message"]


def test_settings_of_an_environment_make_it_playable():
    settings = {"search": {"search_url": "http://127.0.0.1:1/retrieve"}, "text2sql": {"db_path": "databases"}}
    server = build_server(SkyrlGymResourcesServer, env_configs=settings)
    assert [server.find_problem({"env_class": name}) for name in (*settings, "aime")] == [None, None, None]
    assert catalog.make_config("search", {"path": "rows.jsonl", **settings["search"]}) == {
        "server": {"env_configs": {"search": settings["search"]}}
    }
    assert catalog.make_config("aime", {}) == {}


def test_rows_of_a_user_keep_all_their_fields(tmp_path):
    theirs = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "4"},
        "extra_info": {"split": "train"},
    }
    file = tmp_path / "train.jsonl"
    file.write_text(f"{json.dumps(theirs)}\n" * 3)
    first, second = catalog.make_rows("gsm8k", 2, 7, {"path": str(file)})
    assert (first["seed"], second["seed"]) == (7, 8)
    assert first["responses_create_params"] == {"input": theirs["prompt"]}
    assert first.items() >= {key: theirs[key] for key in theirs if key != "prompt"}.items()


@pytest.mark.parametrize(
    ("environment_id", "options", "told"),
    [
        ("gsm8", {}, "did you mean 'gsm8k'"),
        ("searchcode", {}, "no sandbox can contain it"),
        ("search", {}, "option `path`"),
        ("gsm8k", {"path": "nowhere.jsonl"}, "there is no file 'nowhere.jsonl'"),
        ("gsm8k", {"path": str(ORACLE.parents[1] / "data" / "example.jsonl")}, "no `prompt`"),
    ],
)
def test_rows_that_cannot_be_made_are_refused_with_a_hint(environment_id, options, told):
    with pytest.raises(GymError, match=f"(?s){told}.*|.*{told}"):
        catalog.make_rows(environment_id, 1, 0, options)


# --- with the library -------------------------------------------------------------------------------------------------


async def play(url, row, replies):
    """Play a row over HTTP; return the rewards and the last step."""
    async with StepSession(url, row) as session:
        await session.reset()
        rewards, step = [], None
        for said in replies:
            step = await session.step(said)
            rewards.append(step["reward"])
            if step["terminated"]:
                break
        await session.post("/close")
        return rewards, step


def make_games(rows_each, seed=0):
    """Rows of every environment, each with replies: the solution, poor ones, or poor ones and then the solution."""
    games = []
    for env_class in MAKERS:
        for number in range(rows_each):
            draw = random.Random(f"{env_class} {number}")
            row, solution = make_row(env_class, seed + number), make_task(env_class, seed + number).solution
            poor = draw.choices(POOR[env_class], k=draw.randint(1, 3))
            games.append((row, ([solution], poor, [*poor, solution], [poor[0], solution])[number % 4]))
    return games


def play_with_the_library(games, tmp_path):
    file = tmp_path / "games.json"
    file.write_text(json.dumps(games))
    done = subprocess.run(
        [server_python("skyrl_gym"), ORACLE, file], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_many_episodes_get_the_rewards_of_the_library_one_by_one_and_sixteen_at_once(tmp_path, unused_tcp_port):
    games = make_games(20)
    expected = play_with_the_library(games, tmp_path)

    async def play_all(url, at_once):
        slots = asyncio.Semaphore(at_once)

        async def play_one(game):
            async with slots:
                return (await play(url, *game))[0]

        return await asyncio.gather(*map(play_one, games))

    with served("skyrl_gym", unused_tcp_port) as url:
        assert asyncio.run(play_all(url, 16)) == expected
        assert asyncio.run(play_all(url, 1)) == expected
    assert len(games) == 100
    assert {reward for rewards in expected for reward in rewards} >= {-1.0, 0.0, 1.0}


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_what_a_model_writes_can_reach_neither_the_machine_nor_the_next_episode(tmp_path, unused_tcp_port):
    secret = tmp_path / "secret"
    secret.write_text("a secret")

    def program(code, output):
        tests = [{"input": "", "output": output, "testtype": "stdin"}]
        row = {**make_row("lcb", 0), "reward_spec": {"ground_truth": json.dumps(tests)}}
        return row, [f"```python\n{code}\n```"]

    # A program is told by its reward whether the test's output is what it printed.
    told = (
        "def act():\n    {}\ntry:\n    act()\n    print('done')\nexcept BaseException as error:\n    print('refused')"
    )
    attempts = [
        f"import io; io.open({str(secret)!r}).read()",
        f"import socket; socket.create_connection(('127.0.0.1', {unused_tcp_port}))",
        f"import io; io.open({str(tmp_path / 'left')!r}, 'w').write('x')",
    ]
    greedy = program("x = bytearray(8 * 2**30)\nprint('done')", "done")
    poison = make_row("text2sql", 1), [f"{THINK}<sql>PRAGMA hard_heap_limit=1</sql>", make_task("text2sql", 1).solution]
    attach = make_row("text2sql", 1), [f"{THINK}<sql>ATTACH DATABASE '{tmp_path / 'left'}' AS y</sql>"]
    fine = make_row("text2sql", 2), [make_task("text2sql", 2).solution]

    async def play_all(url):
        for attempt in attempts:
            rewards, _ = await play(url, *program(told.format(attempt), "refused"))
            assert rewards == [1.0], attempt
        assert (await play(url, *greedy))[0] == [0.0]
        for game in (poison, attach):
            await play(url, *game)
            assert (await play(url, *fine))[0] == [1.0]

    with served("skyrl_gym", unused_tcp_port, "++skyrl_gym.resources_servers.skyrl_gym.num_sandboxes=1") as url:
        asyncio.run(play_all(url))
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_databases_of_a_user_are_read_and_never_written_and_bad_rows_fail(tmp_path_factory, unused_tcp_port):
    root = tmp_path_factory.mktemp("databases")
    root.chmod(0o755)
    files = {name: root / "spider" / "database" / name / f"{name}.sqlite" for name in ("plain", "wal")}
    row, solution = make_row("text2sql", 3), make_task("text2sql", 3).solution
    for name, file in files.items():
        file.parent.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA journal_mode={'WAL' if name == 'wal' else 'DELETE'}")
            connection.executescript(row["db_script"])
    theirs = {key: value for key, value in row.items() if key != "db_script"}
    before = files["plain"].read_bytes()

    async def begin(url, **fields):
        async with StepSession(url, {**theirs, **fields}) as session:
            return await session.post("/reset")

    async def play_all(url):
        rewards, step = await play(
            url, {**theirs, "db_id": "plain"}, [f"{THINK}<sql>DELETE FROM orders</sql>", solution]
        )
        assert (rewards, step["terminated"]) == ([0.0, 1.0], True)
        for fields, told in (
            ({"db_id": "nowhere"}, "Database file not found"),
            ({"db_id": "plain", "reward_spec": {"ground_truth": "SELECT no"}}, "row's own SQL cannot be run"),
            ({"db_id": "wal"}, "row's own SQL cannot be run"),
        ):
            status, failure = await begin(url, **fields)
            assert (status, failure["kind"]) == (500, "tool_server")
            assert told in failure["message"]

    config = f"++skyrl_gym.resources_servers.skyrl_gym.env_configs={{text2sql: {{db_path: '{root}'}}}}"
    with served("skyrl_gym", unused_tcp_port, config) as url:
        asyncio.run(play_all(url))
    assert files["plain"].read_bytes() == before


class Retriever(BaseHTTPRequestHandler):
    """Knows one document, and breaks on one query."""

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))["query"]
        self.send_response(400 if query == "break" else 200)
        self.end_headers()
        document = {"document": {"contents": "Paris is the capital of France."}}
        self.wfile.write(json.dumps({"result": [[document]]}).encode())

    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_search_asks_the_retriever_of_the_config_and_fails_by_name_if_that_is_broken(unused_tcp_port):
    retriever = ThreadingHTTPServer(("127.0.0.1", 0), Retriever)
    Thread(target=retriever.serve_forever, daemon=True).start()
    row = {
        "env_class": "search",
        "reward_spec": {"ground_truth": {"target": ["Paris"]}},
        "max_turns": 3,
    }

    async def play_all(url):
        async with StepSession(url, row) as session:
            await session.reset()
            searched = await session.step("<search>capital of France</search>")
            assert "Doc 1: Paris is the capital" in searched["observation"][0]["content"]
            assert (await session.step("<answer>Paris</answer>"))["reward"] == 1.0
        async with StepSession(url, row) as session:
            await session.reset()
            status, failure = await session.try_step("<search>break</search>")
            assert (status, failure["kind"]) == (500, "tool_server")
            assert "the retriever in the config did not answer" in failure["message"]

    where = f"http://127.0.0.1:{retriever.server_port}/retrieve"
    config = f"++skyrl_gym.resources_servers.skyrl_gym.env_configs={{search: {{search_url: '{where}'}}}}"
    with served("skyrl_gym", unused_tcp_port, config) as url:
        asyncio.run(play_all(url))
    retriever.shutdown()


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
def test_the_catalog_lists_what_the_installed_library_has_and_reads_parquet(tmp_path):
    code = f"""
import json, pyarrow, pyarrow.parquet
from resources_servers.skyrl_gym import catalog
rows = [{{"prompt": [{{"role": "user", "content": "2 + 2?"}}], "reward_spec": {{"ground_truth": "4"}}}}]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), {str(tmp_path / "rows.parquet")!r})
made = catalog.make_rows("gsm8k", 5, 1, {{"path": {str(tmp_path / "rows.parquet")!r}}})
print(json.dumps([[one["id"] for one in catalog.list_environments()], made]))
"""
    import_nemo_gym_first = f"import nemo_gym\n{code}"
    done = subprocess.run(
        [server_python("skyrl_gym"), "-c", import_nemo_gym_first], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ids, (row,) = json.loads(done.stdout)
    assert ids == ["aime", "gsm8k", "gsm8k_multi_turn", "lcb", "search", "text2sql"]
    assert row["reward_spec"] == {"ground_truth": "4"}


def test_every_example_row_is_of_another_environment():
    assert [row["env_class"] for row in generate_data.rows()] == list(MAKERS)
