# SPDX-License-Identifier: Apache-2.0
"""Every task of the library generates entries and scores them here as it does at home; no answer gets out of hand."""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, build_server, reasoning, reply, running, tool_call
from resources_servers.reasoning_gym import generate_data
from resources_servers.reasoning_gym.app import ReasoningGymResourcesServer
from resources_servers.reasoning_gym.generate_data import UnknownTasks, generate, list_tasks, list_tasks_by_category
from resources_servers.reasoning_gym.scoring import MODULE, extract_answer
from resources_servers.reasoning_gym.scripts import create_dataset

SUM = {
    "question": "State the final answer to the following arithmetic problem: 4 + 3 =",
    "answer": "7",
    "metadata": {"source_dataset": "chain_sum", "source_index": 0},
}
# Of these the library gives no answer, but an example of one.
EXAMPLES = {"propositional_logic": "example_answer", "rubiks_cube": "example_correct_answer"}
NO_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gym():
    """The server's client and its sandboxes, which take a while to start."""
    server = build_server(ReasoningGymResourcesServer, num_processes=1, scorer_timeout_seconds=1)
    async with running(reasoning_gym=server) as client:
        yield client, server._pool


async def verified(client: Any, said: Any, **row: Any) -> Any:
    response = reply(said) if isinstance(said, str) else said
    body = {"responses_create_params": asked("?"), "response": response, **SUM, **row}
    return await client.post("reasoning_gym", "/verify", json=body)


@in_one_loop
async def test_an_answer_is_scored_by_its_task(gym):
    client, _ = gym

    async def one(said: Any, **row: Any) -> Any:
        result = await get_response_json(await verified(client, said, **row))
        assert result["score"] == result["reward"]
        return result["reward"], result["task_name"], result["extracted_answer"]

    assert await one("So: <answer>7</answer>") == (1.0, "chain_sum", "7")
    assert await one(r"It is \boxed{7}, not \boxed{8}") == (1.0, "chain_sum", "7")
    assert await one("7") == (1.0, "chain_sum", "7")
    assert await one("<think><answer>8</answer></think><answer>7</answer>") == (1.0, "chain_sum", "7")
    assert await one("<answer>8</answer>") == (0.0, "chain_sum", "8")
    for nothing in (reply(), reply(""), reply(reasoning("7")), reply(tool_call("x", "{no"))):
        assert await one(nothing) == (0.0, "chain_sum", "")
    # Some scorers give a little to any answer, also to an empty one.
    countdown = next(generate(["countdown"], 1, 1))
    assert await one("<answer></answer>", **fields(countdown)) == (0.01, "countdown", "")
    # A scorer may fail on what is no answer at all, or be asked for what cannot be computed.
    factors = next(generate(["prime_factorization"], 1, 1))
    assert (await one("<answer>no number</answer>", **fields(factors)))[0] == 0.0
    puzzle = next(generate(["puzzle24"], 1, 1))
    assert (await one("9**9**9**9**9", **fields(puzzle)))[0] <= 0.05
    assert (await one("\\boxed{" * 2000 + "x" * 1_000_000))[0] == 0.0
    # Interleaved, each has its own.
    said = list("0123456789" * 2)
    rewards = await asyncio.gather(*(one(text) for text in said))
    assert [reward for reward, _, _ in rewards] == [float(text == "7") for text in said]


@in_one_loop
async def test_what_cannot_be_scored_is_an_error_and_never_a_reward(gym):
    client, _ = gym
    unknown = await verified(client, "7", metadata={"source_dataset": "alchemy"})
    assert unknown.status == 422
    assert "'alchemy'" in await unknown.text()
    assert "chain_sum" in await unknown.text()
    broken = await verified(client, "7", metadata={"source_dataset": "sudoku"})
    assert broken.status == 500
    assert "'sudoku'" in await broken.text()
    nameless = await verified(client, "7", metadata={})
    assert nameless.status == 422


def fields(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "responses_create_params"}


@pytest.mark.thorough
@in_one_loop
async def test_every_task_generates_entries_and_scores_its_own_answers_full(gym):
    rows = [json.loads(json.dumps(fields(row))) for name in list_tasks() for row in generate([name], 1, 42)]
    names = [row["metadata"]["source_dataset"] for row in rows]
    assert names == list_tasks()
    assert len(names) >= 100
    assert {name for name, row in zip(names, rows, strict=True) if row["answer"] is None} <= NO_ANSWER
    right = [row["answer"] or row["metadata"].get(EXAMPLES.get(name)) for name, row in zip(names, rows, strict=True)]
    todo = [[name, answer, row] for name, answer, row in zip(names, right, rows, strict=True) if answer is not None]
    source = f"from {MODULE} import score\ndef all_scores(todo): return [score(*one) for one in todo]"
    ran = await gym[1].call(source, "all_scores", [todo], timeout_s=100)
    assert ran.status == "ok", ran.error
    assert {name: said for (name, _, _), said in zip(todo, ran.value, strict=True) if said != {"score": 1.0}} == {}


HOSTILE = "__import__('os').kill(1, 9)"


@in_one_loop
async def test_an_answer_is_never_run_as_code(gym):
    tasks = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion", "countdown", "puzzle24")
    tries = (
        "raise_flag()",
        "print(1)",
        "exec('raise_flag()')",
        "eval('print(1)')",
        "().__class__.__mro__",
        "().＿＿class＿＿",
        HOSTILE,
    )
    entries = [fields(next(generate([name], 1, 3))) for name in tasks]
    todo = [
        [entry["metadata"]["source_dataset"], answer, entry]
        for entry in entries
        for one in tries
        for answer in (one, f"[{one}]")
    ]
    source = (
        f"from {MODULE} import score\nimport builtins\nraised = []\nbuiltins.raise_flag = lambda: raised.append(1)\n"
        "builtins.print = lambda *_: raised.append(1)\n"
        "def all_scores(todo): return [[score(*one).get('score') for one in todo], raised]"
    )
    ran = await gym[1].call(source, "all_scores", [todo], timeout_s=60)
    assert ran.status == "ok", ran.error
    scores, raised = ran.value
    assert raised == []
    assert all(score is not None and score <= 0.05 for score in scores)


@in_one_loop
async def test_a_sandbox_that_has_loaded_all_scorers_is_as_good_as_new(gym):
    ran = await gym[1].run("import os; print(os.listdir('.'))")
    assert ran.stdout == "[]\n"


def test_tasks_take_turns_and_a_seed_decides():
    rows = list(generate(["chain_sum", "maze"], 5, 1))
    assert [row["metadata"]["source_dataset"] for row in rows] == [
        "chain_sum",
        "maze",
        "chain_sum",
        "maze",
        "chain_sum",
    ]
    assert rows == list(generate(["chain_sum", "maze"], 5, 1))
    assert rows != list(generate(["chain_sum", "maze"], 5, 2))
    with pytest.raises(UnknownTasks, match="'alchemy'"):
        next(generate(["alchemy"], 1, 1))


@pytest.mark.parametrize(
    ("flags", "tasks"),
    [
        (["--task", "chain_sum"], {"chain_sum"}),
        (["--tasks", "chain_sum, gcd"], {"chain_sum", "gcd"}),
        (["--category", "probability"], {"coin_flip"}),
        (["--task", "chain_sum", "--config", '{"min_terms": 9, "max_terms": 9}'], {"chain_sum"}),
        (["--tasks", "gcd,lcm", "--config", '{"gcd": {"min_numbers": 3, "max_numbers": 3}}'], {"gcd", "lcm"}),
    ],
)
def test_the_command_writes_rows(tmp_path, capsys, flags, tasks):
    output = tmp_path / "new" / "rows.jsonl"
    assert create_dataset.main([*flags, "--size", "4", "--seed", "7", "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 4
    assert {row["metadata"]["source_dataset"] for row in rows} == tasks
    if "min_terms" in flags[-1]:
        assert all(row["metadata"]["num_terms"] == 9 for row in rows)
    assert capsys.readouterr().out.startswith(f"Wrote {output}: 4 rows of {len(tasks)} task")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--task", "alchemy"], "there is no task 'alchemy'"),
        (["--category", "alchemy"], "there is no category 'alchemy'"),
        (["--task", "gcd", "--size", "0"], "--size must be at least 1"),
        (["--task", "gcd", "--config", "{"], "--config is not valid JSON"),
        (["--task", "gcd", "--config", '{"no_such_key": 1}'], "no_such_key"),
        (["--tasks", "gcd,lcm", "--config", '{"min_numbers": 3}'], "settings by name"),
    ],
)
def test_what_the_command_cannot_do_is_said_and_nothing_is_written(tmp_path, capsys, flags, complaint):
    output = tmp_path / "rows.jsonl"
    assert create_dataset.main([*flags, "--output", str(output)]) == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_lists_all_tasks_by_category(capsys):
    assert create_dataset.main(["--list"]) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert {category: names.split(", ") for category, names in lines.items()} == list_tasks_by_category()
    assert sum(len(names) for names in list_tasks_by_category().values()) == len(list_tasks())


def test_metrics_give_the_mean_of_every_task():
    server = build_server(ReasoningGymResourcesServer)
    rollouts = [
        [{"task_name": "gcd", "reward": 1.0}, {"task_name": "gcd", "reward": 0.0}],
        [],
        [{"task_name": "ab", "reward": 0.25}],
    ]
    metrics = server.compute_metrics(rollouts)
    assert (metrics["mean/reward/ab"], metrics["mean/reward/gcd"]) == (0.25, 0.5)


def test_the_example_rows_are_answered_in_tags():
    for row in generate_data.rows():
        (said,) = generate_data.solution(row)
        assert extract_answer(said) == row["answer"]


@given(st.text() | st.from_regex(r"(\\boxed\{|</?answer>|</?think>|\}|7|\s){0,200}"))
@settings(max_examples=40, deadline=None)
def test_whatever_a_model_says_gives_some_answer(said):
    answer = extract_answer(said)
    assert answer == answer.strip()
    assert answer in said


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("<answer>1</answer> or <answer> 2\n</answer>", "2"),
        ("<answer>1 <answer>2</answer>", "1 <answer>2"),
        ("<answer>1</answer> <answer>2", "1"),
        ("<ANSWER>1</ANSWER>", "<ANSWER>1</ANSWER>"),
        (r"<answer>\boxed{1}</answer>", r"\boxed{1}"),
        (r"\boxed{1} \boxed{2}", "1"),
        (r"\boxed{} \boxed{\frac{1}{2}}", r"\frac{1"),
        (r"\boxed{1", r"\boxed{1"),
        (" all of it ", "all of it"),
    ],
)
def test_an_answer_is_in_tags_in_a_box_or_everything(said, answer):
    assert extract_answer(said) == answer


@pytest.mark.parametrize("said", ["<answer>" * 120_000, r"\boxed{" * 140_000, r"\boxed{}" * 120_000])
def test_a_megabyte_of_openings_is_read_at_once(said):
    assert extract_answer(said) == said
