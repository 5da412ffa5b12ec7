# SPDX-License-Identifier: Apache-2.0
"""Prepared rows in the servers that the configs name: right answers are worth 1, wrong and empty ones 0."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from omegaconf import OmegaConf

from nemo_gym._servers.launching.launch import server_folder
from nemo_gym._servers.processes.entrypoint import load_server_class
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from nemo_gym.prompt import apply_prompt_to_row, load_prompt_config
from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import reply, running
from tests.benchmarks.samples import SAMPLES, boxed, program

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOR_PEOPLE = ("description", "value")
WRONG_LETTER = {"A": "B", "B": "C", "C": "D", "D": "A"}


def parsed(name: str, **settings: Any) -> Any:
    """The config of a benchmark, merged and resolved as a run has it."""
    paths = {"config_paths": [f"benchmarks/{name}/config.yaml"], **settings}
    return GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.merge(GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, paths),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
            offline=True,
        )
    )


class Servers:
    """The servers that were needed so far: one for all benchmarks that want the same, since some take long to start."""

    def __init__(self, ends: AsyncExitStack) -> None:
        self._ends = ends
        self._clients = dict[str, ServerClient]()

    async def client_of(self, impl: str, **fields: Any) -> ServerClient:
        key = json.dumps([impl, fields], sort_keys=True)
        if key not in self._clients:
            cls = load_server_class(server_folder("resources_servers", impl), "app.py", SimpleResourcesServer)
            self._clients[key] = await self._ends.enter_async_context(running(server=(cls, fields)))
        return self._clients[key]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as ends:
        yield Servers(ends)


async def rewards(
    started: Servers, name: str, row: dict[str, Any], *replies: str, settings: dict[str, Any] | None = None
) -> list[float]:
    """What the server of a benchmark says of replies to a row, asked with the prompt of the benchmark."""
    servers = GlobalConfigDictParser().filter_for_server_instance_configs(parsed(name, **(settings or {})))
    (server,) = (one for one in servers if one.SERVER_TYPE == "resources_servers")
    (agent,) = (one.get_inner_run_server_config_dict() for one in servers if one.SERVER_TYPE == "responses_api_agents")
    assert agent["resources_server"] == {"type": "resources_servers", "name": server.name}
    ((impl, fields),) = server.server_type_config_dict["resources_servers"].items()
    (dataset,) = agent["datasets"]
    asked = apply_prompt_to_row(load_prompt_config(dataset["prompt_config"]), row)
    assert fields["entrypoint"] == "app.py"
    left_out = ("host", "port", *FOR_PEOPLE)
    made = {key: value for key, value in OmegaConf.to_container(fields, resolve=True).items() if key not in left_out}
    client = await started.client_of(impl, **made)
    given = []
    for said in replies:
        answer = await client.post("server", "/verify", json={**asked, "response": reply(said)})
        assert answer.status == 200, await answer.text()
        given.append((await get_response_json(answer))["reward"])
    return given


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.right])
async def test_right_answers_are_worth_one_and_wrong_ones_nothing(prepare, servers, name):
    sample = SAMPLES[name]
    for row, right, wrong in zip(prepare(name), sample.right, sample.wrong, strict=True):
        assert await rewards(servers, name, row, right, wrong, "") == [1.0, 0.0, 0.0]


PUBLISHED = {"protocol": "published"}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("gsm8k", "So {}.\n#### {}"),
        ("math-500", "So it is {}.\n\nAnswer: {}"),
        ("aime24", "So \\boxed{{{1}}}."),
        ("aime25", "So \\boxed{{{1}}}."),
    ],
)
async def test_the_published_protocol_finds_an_answer_where_its_prompt_asks_for_it(prepare, servers, name, write):
    for row in prepare(name):
        right = row["expected_answer"]
        replies = (write.format(right, right), write.format(right, "1234567"), f"It is {right}.", "")
        assert await rewards(servers, name, row, *replies, settings=PUBLISHED) == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("said", "reward"), [("#### $1,234", 1.0), ("####1234.0", 1.0), ("#### 1234 apples.", 1.0)])
async def test_a_published_answer_of_gsm8k_may_have_a_unit(servers, said, reward):
    row = {"question": "How many?", "expected_answer": "1234"}
    assert await rewards(servers, "gsm8k", row, said, settings=PUBLISHED) == [reward]


@pytest.mark.parametrize("name", ["gpqa", "mmlu_pro"])
async def test_the_published_protocol_of_a_choice_reads_the_answer_line(prepare, servers, name):
    (row, *_) = prepare(name)
    right = row["expected_answer"]
    replies = (f"Hm.\n\n**Answer:** {right}", f"Answer: {WRONG_LETTER.get(right, 'A')}", f"\\boxed{{{right}}}")
    assert await rewards(servers, name, row, *replies, settings=PUBLISHED) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "repeats"),
    [("gpqa", (1, 8)), ("mmlu_pro", (1, 1)), ("gsm8k", (1, 1)), ("math-500", (1, 1)), ("aime24", (8, 32))],
)
async def test_a_protocol_chooses_the_repeats(name, repeats):
    found = []
    for protocol in ("ours", "published"):
        servers = GlobalConfigDictParser().filter_for_server_instance_configs(parsed(name, protocol=protocol))
        agents = (one for one in servers if one.SERVER_TYPE == "responses_api_agents")
        found += [agent.get_inner_run_server_config_dict()["datasets"][0]["num_repeats"] for agent in agents]
    assert tuple(found) == repeats


async def test_the_right_letter_of_gpqa_is_worth_one(prepare, servers):
    for row in prepare("gpqa"):
        letter = row["expected_answer"]
        assert await rewards(servers, "gpqa", row, *boxed(letter, WRONG_LETTER[letter]), "") == [1.0, 0.0, 0.0]


async def test_a_solution_that_ends_the_process_has_passed_nothing(prepare, servers):
    for name in ("human_eval", "mbpp"):
        row = prepare(name)[0]
        ends = [program(f"import {module}\n{module}.{exit}(0)") for module, exit in (("sys", "exit"), ("os", "_exit"))]
        assert await rewards(servers, name, row, *ends) == [0.0, 0.0]


async def test_a_failed_assertion_is_a_wrong_answer_and_an_exception_an_error(prepare, servers):
    row = prepare("mbpp")[0]
    asked = {**row, "responses_create_params": {"input": "?"}}
    client = await servers.client_of("code_gen")
    results = []
    for source in ("def swap(pair): return pair[1], 'x'", "def swap(pair): return pair[2]", "def other(): pass"):
        answer = await client.post("server", "/verify", json={**asked, "response": reply(program(source))})
        results.append((await get_response_json(answer))["result"])
    assert results == [[False], [-4], [-4]]


async def test_a_harness_without_a_function_is_refused(prepare, servers):
    row = prepare("mbpp")[0]
    tests = {**row["verifier_metadata"]["unit_tests"], "fn_name": None}
    body = {"responses_create_params": {"input": "?"}, "verifier_metadata": {"unit_tests": tests}}
    client = await servers.client_of("code_gen")
    answer = await client.post("server", "/verify", json={**body, "response": reply("x")})
    assert answer.status == 422
    assert "fn_name" in await answer.text()
