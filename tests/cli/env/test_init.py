# SPDX-License-Identifier: Apache-2.0
"""A scaffold is complete, valid, tidy, and never takes the place of something that is there."""

import asyncio
import importlib
import json
import keyword
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from nemo_gym import PARENT_DIR
from nemo_gym._authoring.environment_manifest import read_manifest
from nemo_gym._authoring.scaffold_plans import BadName, check_name
from nemo_gym._authoring.server_suites import find_data_problems
from nemo_gym.cli import legacy
from nemo_gym.cli.main import run_command
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reply, running, scripted_model, tool_call
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.support.scaffold_data import NAME, TEMPLATES, computed_data

SERVER_FILES = {
    "README.md",
    "__init__.py",
    "app.py",
    "configs/shop.yaml",
    "data/.gitignore",
    "data/example.jsonl",
    "data/example_metrics.json",
    "data/example_rollouts.jsonl",
    "requirements.txt",
    "tests/test_app.py",
}
WORKED_EXAMPLE_FILES = {*SERVER_FILES, "generate_data.py", "tests/verifier_cases.jsonl"}

# What the how-to "Add a resource server" puts into app.py, each after or in place of a text that it shows.
HOW_TO_EDITS = [
    (
        "    pass\n\n\nclass TestWeatherResourcesServer(",
        """    pass


class GetWeatherRequest(BaseModel):
    city: str


class GetWeatherResponse(BaseModel):
    city: str
    weather_description: str


class TestWeatherResourcesServer(""",
    ),
    (
        """        # app.post("/get_weather")(self.get_weather)

        return app

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
""",
        """        # app.post("/get_weather")(self.get_weather)

        return app

    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        return GetWeatherResponse(
            city=body.city, weather_description=f"The weather in {body.city} is cold."
        )

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
""",
    ),
    (
        """    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        # Additional server routes go here! e.g.:
        # app.post("/get_weather")(self.get_weather)
""",
        """    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        # Additional server routes go here! e.g.:
        app.post("/get_weather")(self.get_weather)
""",
    ),
]
GET_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str) -> int:
    return run_command(["env", "init", *words])


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_resources_server_has_all_its_files(here, capsys):
    assert init("--resources-server", "shop") == 0
    folder = here / "resources_servers" / "shop"
    assert files(folder) == SERVER_FILES
    assert find_data_problems(folder) == []
    assert "gym env test --resources-server shop" in capsys.readouterr().err


def test_its_config_is_that_of_the_contract(here):
    init("+entrypoint=resources_servers/shop")
    config = yaml.safe_load((here / "resources_servers/shop/configs/shop.yaml").read_text())
    server = config["shop_resources_server"]["resources_servers"]["shop"]
    agent = config["shop_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert (server["entrypoint"], server["domain"], server["verified"]) == ("app.py", "other", False)
    assert agent["resources_server"] == {"type": "resources_servers", "name": "shop_resources_server"}
    assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
    train, validation, example = agent["datasets"]
    for dataset, on_the_hub in ((train, "instruction_following.jsonl"), (validation, "if_validation.jsonl")):
        split = dataset["type"]
        assert dataset == {
            "name": split,
            "type": split,
            "license": "Apache 2.0",
            "jsonl_fpath": f"resources_servers/shop/data/{split}.jsonl",
            "num_repeats": 1,
            "gitlab_identifier": {
                "dataset_name": "shop",
                "version": "0.0.1",
                "artifact_fpath": f"shop/{split}.jsonl",
            },
            "huggingface_identifier": {
                "repo_id": "nvidia/Nemotron-RL-instruction_following",
                "artifact_fpath": on_the_hub,
            },
        }
    path = "resources_servers/shop/data/example.jsonl"
    assert example == {"name": "example", "type": "example", "jsonl_fpath": path, "num_repeats": 1}
    assert (here / "resources_servers/shop/requirements.txt").read_text() == "-e nemo-gym[dev] @ ../../\n"


def test_the_older_command_makes_it_too(here, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ng_init_resources_server", "+entrypoint=resources_servers/shop"])
    assert legacy.run_alias() == 0
    assert files(here / "resources_servers" / "shop") == SERVER_FILES


async def play_weather_task(server: type) -> dict:
    """Let an agent ask for the weather with the tool of `server`; the rollout."""
    refs = {
        "resources_server": {"type": "resources_servers", "name": "test_weather"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    model = scripted_model(reply(tool_call("get_weather", {"city": "San Francisco"})), "It is cold in SF.")
    async with running(test_weather=server, simple_agent=(SimpleAgent, refs), policy_model=model) as client:
        task = {"responses_create_params": asked("What is the weather in SF?", tools=[GET_WEATHER])}
        return await get_response_json(await client.post("simple_agent", "/run", json=task))


def test_the_edits_of_the_how_to_make_a_tool_that_an_agent_uses(here, monkeypatch):
    init("+entrypoint=resources_servers/test_weather")
    path = here / "resources_servers" / "test_weather" / "app.py"
    text = path.read_text()
    for before, after in HOW_TO_EDITS:
        assert text.count(before) == 1
        text = text.replace(before, after)
    path.write_text(text)

    monkeypatch.syspath_prepend(here)
    app = importlib.import_module("resources_servers.test_weather.app")
    rollout = asyncio.run(play_weather_task(app.TestWeatherResourcesServer))
    assert json.loads(rollout["response"]["output"][1]["output"]) == {
        "city": "San Francisco",
        "weather_description": "The weather in San Francisco is cold.",
    }
    assert rollout["reward"] == 1.0
    suite = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=strict"]
    done = subprocess.run(suite, cwd=path.parent, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout


def test_its_config_is_valid(here, capsys):
    init("--resources-server", "shop")
    assert run_command(["env", "validate", "--resources-server", "shop"]) == 0
    assert "✓ Config is valid." in capsys.readouterr().out


def test_a_folder_that_is_there_is_left_alone_and_that_is_no_failure(here, capsys):
    folder = here / "resources_servers" / "shop"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("mine")
    assert init("--resources-server", "shop") == 0
    assert files(folder) == {"app.py"}
    assert (folder / "app.py").read_text() == "mine"
    assert "nothing was written" in capsys.readouterr().err


def test_an_empty_folder_is_filled(here):
    (here / "resources_servers" / "shop").mkdir(parents=True)
    assert init("--resources-server", "shop") == 0
    assert files(here / "resources_servers" / "shop") == SERVER_FILES


@pytest.mark.parametrize(
    ("name", "meant"),
    [("My-Server", "my_server"), ("MyServer", "my_server"), ("2fast", "fast"), ("class", "class_env")],
)
def test_a_name_that_cannot_be_a_package_is_refused_with_one_that_can(here, capsys, name, meant):
    assert init("--resources-server", name) == 2
    assert f"{meant!r} would do" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20))
def test_a_name_is_refused_or_a_package_can_have_it(name):
    if name.isascii() and name.isidentifier() and name.islower() and name[0] != "_" and not keyword.iskeyword(name):
        assert check_name(name) == name
    else:
        with pytest.raises(BadName, match="cannot name a server"):
            check_name(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what to create"),
        (("--resources-server", "a", "--environment", "b"), "say what to create"),
        (("+entrypoint=responses_api_agents/mine",), "only resources servers have a template"),
        (("--resources-server", "a", "--reuse-verifier", "b"), "for --environment and --benchmark only"),
        (("--environment", "a", "--reuse-verifier", "example_multi_stp"), "Did you mean 'example_multi_step'?"),
        (("--environment", "a", "--reward-range", "1", "0"), "from low to high"),
        (("--environment", "a", "--profile", "custom"), "is not one of"),
    ],
)
def test_a_mistake_on_the_command_line_writes_nothing(here, capsys, words, said):
    assert init(*words) == 2
    assert said in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_an_error_that_names_it(here, capsys):
    here.chmod(0o500)
    try:
        assert init("--resources-server", "shop") == 1
    finally:
        here.chmod(0o700)
    assert "Permission denied" in capsys.readouterr().err


def test_a_file_in_the_way_is_an_error_and_nothing_is_left_behind(here, capsys):
    (here / "resources_servers").write_text("a file")
    assert init("--resources-server", "shop") == 1
    assert "cannot write" in capsys.readouterr().err
    assert files(here) == {"resources_servers"}


@pytest.mark.parametrize(
    ("words", "template"), [("--resources-server", "resources_server"), ("--environment", "worked_example")]
)
def test_the_data_of_a_template_is_what_its_own_code_computes(here, words, template):
    assert init(words, NAME) == 0
    for path, text in computed_data(template, here).items():
        shipped = (TEMPLATES / template / f"{path}.tmpl").read_text().replace("@@NAME@@", NAME)
        assert shipped == text, f"{path} is out of date: python -m tests.support.scaffold_data"


def test_the_code_is_formatted_and_without_lint(here):
    init("--resources-server", "shop")
    init("--benchmark", "quiz", "--profile", "custom-gym-agent-loop")
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--no-cache", "--config", str(PARENT_DIR / "pyproject.toml")]
    # A new server keeps the lines between which its routes go.
    for command in (["check", "--ignore", "RET504"], ["format", "--check"]):
        done = subprocess.run([*ruff, *command, *config, "."], cwd=here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# --- environments and benchmarks --------------------------------------------------------------------------------------


def test_an_environment_comes_with_a_verifier_of_its_own(here):
    assert init("--environment", "shop", "--reward-range", "-1", "1", "--lower-is-better") == 0
    assert files(here / "environments" / "shop") == {"README.md", "config.yaml", "manifest.yaml", "data/example.jsonl"}
    assert files(here / "resources_servers" / "shop") == WORKED_EXAMPLE_FILES
    manifest, problems = read_manifest(here / "environments/shop/manifest.yaml")
    assert not problems
    assert (manifest.kind, manifest.integration_profile) == ("environment", "custom-gym-verifier")
    assert (manifest.reward.range, manifest.reward.higher_is_better) == ((-1.0, 1.0), False)


@pytest.mark.parametrize("kind", ["environment", "benchmark"])
@pytest.mark.parametrize(
    ("words", "agent"),
    [
        ((), "quiz_simple_agent"),
        (("--reuse-verifier", "example_multi_step"), "quiz_example_multi_step_simple_agent"),
        (("--profile", "custom-gym-agent-loop"), "quiz_agent"),
        (("--profile", "external-agent-loop"), "quiz_remote_agent"),
        (("--profile", "external-rollout-driver"), "quiz_simple_agent"),
    ],
)
def test_every_way_of_making_one_gives_a_valid_config_with_one_agent(here, capsys, kind, words, agent):
    assert init(f"--{kind}", "quiz", *words) == 0
    capsys.readouterr()
    assert (
        run_command(
            ["env", "validate", "quiz", "--kind", kind, "--json", "--allow-unknown-keys", "+agent_base_url=http://x"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["servers"] if one["server_type"] == "responses_api_agents"] == [agent]


def test_making_it_again_changes_nothing_and_a_changed_file_stops_all_writes(here, capsys):
    init("--benchmark", "quiz")
    before = files(here)
    assert init("--benchmark", "quiz") == 0
    assert "nothing was written" in capsys.readouterr().err
    (here / "benchmarks/quiz/config.yaml").write_text("mine: true\n")
    (here / "benchmarks/quiz/prompt.yaml").unlink()
    assert init("--benchmark", "quiz") == 1
    assert "benchmarks/quiz/config.yaml" in capsys.readouterr().err
    assert files(here) == before - {"benchmarks/quiz/prompt.yaml"}


def test_a_benchmark_prepares_rows_for_its_prompt(here):
    init("--benchmark", "quiz")
    code = "from benchmarks.quiz.prepare import prepare; print(prepare())"
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in Path(done.stdout.strip()).read_text().splitlines()]
    prompt = yaml.safe_load((here / "benchmarks/quiz/prompt.yaml").read_text())
    assert len(rows) == 5
    assert all("input" not in row["responses_create_params"] for row in rows)
    examples = [json.loads(line) for line in (here / "benchmarks/quiz/data/example.jsonl").read_text().splitlines()]
    system, user = examples[0]["responses_create_params"]["input"]
    assert prompt["user"].format(**rows[0]) == user["content"]
    assert prompt["system"].format(**rows[0]) == system["content"]


def test_a_manifest_with_mistakes_is_reported_in_full(here, capsys):
    init("--environment", "shop")
    manifest = here / "environments" / "shop" / "manifest.yaml"
    manifest.write_text("nmae: shop\nkind: thing\nreward: {range: [1, 0]}\n")
    assert run_command(["env", "validate", "shop", "--manifest", str(manifest)]) == 1
    said = capsys.readouterr().err
    for text in ("Did you mean 'name'?", "kind", "from low to high", "problems"):
        assert text in said
