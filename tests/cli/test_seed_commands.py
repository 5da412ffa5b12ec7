# SPDX-License-Identifier: Apache-2.0
"""Every command that users know from the documentation: it is there in both spellings, takes what it is documented to
take, and prints what it is documented to print. The examples run as they are written, as far as one machine allows.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR, __version__
from nemo_gym.cli import legacy
from nemo_gym.cli.commands import COMMANDS, GROUPS, LEGACY
from tests.support.eval_runs import fake_endpoint
from tests.support.in_process import Said, said_by
from tests.support.small_servers import free_port

BIN = Path(sys.executable).parent
SERVER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
EXAMPLES = PARENT_DIR / "resources_servers/example_single_tool_call/data/example.jsonl"

# What the older command reference documents: the parameters of each command.
LEGACY_PARAMETERS = {
    "run": ["config_paths"],
    "test": ["entrypoint", "should_validate_data"],
    "test_all": ["fail_on_total_and_test_mismatch"],
    "dev_test": [],
    "init_resources_server": ["entrypoint"],
    "collect_rollouts": [
        "agent_name",
        "input_jsonl_fpath",
        "output_jsonl_fpath",
        "limit",
        "num_repeats",
        "num_samples_in_parallel",
        "responses_create_params",
    ],
    "profile": ["input_jsonl_fpath", "rollouts_jsonl_fpath", "output_jsonl_fpath", "pass_threshold"],
    "viewer": ["jsonl_fpath", "server_host", "server_port"],
    "dump_config": ["config_paths"],
    "version": ["json_format"],
    "pip_list": ["entrypoint", "format", "outdated"],
    "status": [],
    "validate": ["config_paths"],
    "e2e_collect_rollouts": ["output_jsonl_fpath", "split"],
    "aggregate_rollouts": ["input_glob", "output_jsonl_fpath"],
    "reward_profile": ["rollouts_jsonl_fpath"],
    "list_benchmarks": [],
    "prepare_benchmark": ["prepare_script_args"],
    "prepare_data": ["output_dirpath", "mode", "should_download"],
    "materialize_prompts": ["input_jsonl_fpath", "prompt_config", "output_jsonl_fpath"],
    "upload_dataset_to_gitlab": ["dataset_name", "version", "input_jsonl_fpath"],
    "download_dataset_from_gitlab": ["dataset_name", "version", "artifact_fpath", "output_fpath"],
    "delete_dataset_from_gitlab": ["dataset_name"],
    "upload_dataset_to_hf": [
        *("hf_token", "hf_organization", "hf_collection_name", "hf_collection_slug", "dataset_name"),
        *("input_jsonl_fpath", "resource_config_path", "hf_dataset_prefix", "delete_from_gitlab"),
        *("split", "create_pr", "revision", "commit_message", "commit_description"),
    ],
    "download_dataset_from_hf": ["output_fpath", "hf_token", "artifact_fpath", "repo_id", "output_dirpath", "split"],
    "gitlab_to_hf_dataset": [
        *("hf_token", "hf_organization", "hf_collection_name", "hf_collection_slug", "dataset_name"),
        *("input_jsonl_fpath", "resource_config_path", "hf_dataset_prefix"),
    ],
}
SPELLINGS = [f"{prefix}_{name}" for name in (*LEGACY_PARAMETERS, "help") for prefix in ("ng", "nemo_gym")]

SELECTORS = ["--config", "--benchmark", "--environment", "--resources-server", "--model-type", "--search-dir"]
MODEL_FLAGS = ["--model", "-m", "--model-url", "--model-api-key"]
# What the newer command reference documents: the flags of each command.
FLAGS = {
    "list benchmarks": ["--json"],
    "list environments": ["--json", "--domain", "--kind", "--modality", "--licensing", "--status", "--lifecycle"],
    "list agents": ["--json"],
    "list models": ["--json"],
    "list resources-servers": ["--json"],
    "search": ["--json", "--search-dir"],
    "dataset upload": ["--storage", "--input", "-i", "--name", "--revision", "--split", "--create-pr"],
    "dataset download": [
        *("--storage", "--repo-id", "--name", "--revision", "--artifact", "--output", "-o", "--output-dir", "--split"),
    ],
    "dataset rm": ["--name"],
    "dataset migrate": ["--input", "-i", "--name", "--revision", "--split", "--create-pr"],
    "dataset render": ["--input", "-i", "--prompt-config", "--output", "-o", "--search-dir"],
    "dataset collate": [
        *("--config", "--resources-server", "--model-type", "--search-dir", "--mode", "--output-dir", "--download"),
    ],
    "env init": [
        "--resources-server",
        "--environment",
        "--benchmark",
        "--profile",
        "--reuse-verifier",
        "--reward-range",
    ],
    "env resolve": ["--config", "--search-dir"],
    "env validate": [*SELECTORS, *MODEL_FLAGS, "--kind", "--manifest", "--json"],
    "env packages": ["--resources-server", "--outdated", "--json", "--search-dir"],
    "env test": ["--resources-server", "--search-dir"],
    "env start": [*SELECTORS, *MODEL_FLAGS],
    "env prefetch": SELECTORS,
    "env status": ["--json"],
    "eval prepare": ["--config", "--benchmark", "--search-dir"],
    "eval run": [
        *SELECTORS,
        *MODEL_FLAGS,
        *("--no-serve", "--resume", "--agent", "-a", "--input", "-i", "--output", "-o", "--limit", "--num-repeats"),
        *("--prompt-config", "--concurrency", "--split", "--temperature", "--top-p", "--max-output-tokens"),
        "--disable-aggregation",
    ],
    "eval aggregate": ["--config", "--input-glob", "-i", "--output", "-o"],
    "eval profile": ["--inputs", "--rollouts"],
    "eval reverify": [
        *SELECTORS,
        *("--inputs", "--rollouts", "--output", "-o", "--concurrency", "--limit", "--force", "--overwrite"),
        *("--resume", "--disable-aggregation", "--judge-failed-only", "--append"),
    ],
    "dev test": [],
}


# --- they exist -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ["gym", "ng", *SPELLINGS])
def test_the_command_is_installed(alias):
    (script,) = entry_points(group="console_scripts", name=alias)
    assert script.value == f"nemo_gym.cli.{'legacy' if '_' in alias else 'main'}:main"


def test_every_legacy_name_is_installed_in_both_spellings():
    installed = {script.name for script in entry_points(group="console_scripts")}
    assert {f"{prefix}_{name}" for name in LEGACY for prefix in ("ng", "nemo_gym")} <= installed


@pytest.mark.parametrize("name", [name for name in LEGACY_PARAMETERS if name in LEGACY])
def test_a_legacy_command_stands_for_one_that_exists(name):
    first, *rest = LEGACY[name]
    assert first in COMMANDS or first == "--version" or rest[0] in GROUPS[first]


@pytest.mark.parametrize("prefix", ["ng", "nemo_gym"])
@pytest.mark.parametrize("name", LEGACY_PARAMETERS)
@pytest.mark.parametrize("asked", ["+help=true", "+h=true"])
def test_help_of_a_legacy_command_lists_its_documented_parameters(prefix, name, asked, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"/bin/{prefix}_{name}", asked])
    assert legacy.main() == 0
    out, err = capsys.readouterr()
    assert err == (
        f"⚠ `{prefix}_{name}` is deprecated and will be removed in a future release; "
        f"use `gym {' '.join(LEGACY[name])}` instead.\n"
    )
    assert out.startswith("Displaying help for ")
    listed = {line.split()[1]: line for line in out.splitlines() if line.startswith("- ")}
    assert set(LEGACY_PARAMETERS[name]) <= set(listed)
    assert all("(" in line and ("[required]" in line or "[default: " in line) for line in listed.values())


@pytest.mark.parametrize("name", FLAGS)
def test_help_of_a_command_lists_its_documented_flags(name, gym):
    said = gym(*name.split(), "-h")
    assert said.code == 0
    assert said.out.startswith(f"usage: gym {name}")
    spelt = {word.strip(",") for word in said.out.split()}
    assert set(FLAGS[name]) <= spelt


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_lists_its_commands(group, gym):
    assert gym(group, "-h").code == gym(group, "--help").code == 0
    assert all(name in gym(group, "-h").out for name in GROUPS[group])


def test_help_of_help_lists_every_command_in_both_languages(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/bin/ng_help"])
    assert legacy.main() == 0
    out = capsys.readouterr().out
    assert all(f"{group}: " in out for group in GROUPS)
    assert all(f"ng_{name} " in out for name in LEGACY)


# --- they do what the examples show -----------------------------------------------------------------------------------


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch, capsys) -> Run:
    """Run a command in a folder. The scripts are there (see above); here is what stands behind them."""

    def run(folder: Path, alias: str, *words: str) -> Said:
        monkeypatch.chdir(folder)
        return said_by(monkeypatch, capsys, alias, *words)

    return run


@dataclass(frozen=True)
class Running:
    """`ng_run` in a folder."""

    folder: Path
    tokens: str


@pytest.fixture
def servers(running, run, monkeypatch) -> tuple[Path, Run]:
    """The folder of the running servers, and how they are told something there."""
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", running.tokens)
    return running.folder, lambda *words: run(running.folder, *words)


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    """Servers started as the older command reference starts them; the model is in env.yaml."""
    folder = tmp_path_factory.mktemp("project")
    tokens = str(tmp_path_factory.mktemp("tokens"))
    with fake_endpoint() as endpoint:
        (folder / "env.yaml").write_text(
            f"policy_base_url: {endpoint.url}/v1\npolicy_api_key: sk-hidden\npolicy_model_name: fake\n"
            f"head_server: {{host: 127.0.0.1, port: {free_port()}}}\n"
        )
        (folder / "weather_query.jsonl").write_text(EXAMPLES.read_text())
        started = subprocess.Popen(
            [str(BIN / "ng_run"), f"+config_paths=[{SERVER},{MODEL}]"],
            cwd=folder,
            env={**os.environ, "NEMO_GYM_RUN_TOKEN_DIR": tokens},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = []
            for line in started.stderr:
                said.append(line)
                if "servers ready!" in line:
                    break
            assert "All 3 / 3 servers ready!" in "".join(said), "".join(said)
            yield Running(folder, tokens)
        finally:
            started.terminate()
            started.wait(30)
            started.stderr.close()


@pytest.mark.parametrize("alias", ["ng_status", "nemo_gym_status"])
def test_status_shows_every_server_as_documented(servers, alias):
    _, tell = servers
    done = tell(alias)
    assert done.code == 0
    assert "NeMo Gym Server Status:" in done.out
    assert "✓ example_single_tool_call_simple_agent (responses_api_agents/simple_agent)" in done.out
    for field in ("server_type", "name", "port", "pid", "uptime_seconds"):
        assert done.out.count(f"    '{field}': ") == 3
    assert "3 servers found (3 healthy, 0 unhealthy)" in done.out


def test_status_as_json_has_its_documented_fields(servers):
    _, tell = servers
    listed = json.loads(tell("gym", "env", "status", "--json").out)
    fields = "config_path dir_path entrypoint host name pid port process_name server_type start_time status"
    assert all({*fields.split(), "uptime_seconds", "url"} <= set(server) for server in listed)
    assert len(listed) == 3


def test_rollouts_are_collected_and_profiled_as_in_the_examples(servers):
    folder, tell = servers
    collected = tell(
        "ng_collect_rollouts",
        "+agent_name=example_single_tool_call_simple_agent",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+output_jsonl_fpath=weather_rollouts.jsonl",
        "+limit=100",
        "+num_repeats=4",
        "+num_samples_in_parallel=10",
    )
    assert collected.code == 0, collected.err
    rows = [json.loads(line) for line in (folder / "weather_rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * len(EXAMPLES.read_text().splitlines())
    assert {"response", "reward", "_ng_task_index", "_ng_rollout_index"} <= set(rows[0])

    profiled = tell(
        "ng_profile",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+rollouts_jsonl_fpath=weather_rollouts.jsonl",
        "+output_jsonl_fpath=profiled_tasks.jsonl",
        "+pass_threshold=1.0",
    )
    assert profiled.code == 0, profiled.err
    task = json.loads((folder / "profiled_tasks.jsonl").read_text().splitlines()[0])
    statistics = "avg_reward std_reward min_reward max_reward total_samples pass_rate pass_rate_total pass_rate_passed"
    assert {"responses_create_params", *statistics.split(), "pass_threshold"} <= set(task)


def test_null_stands_for_a_parameter_that_is_not_given(servers):
    folder, tell = servers
    done = tell(
        "nemo_gym_collect_rollouts",
        "+agent_name=example_single_tool_call_simple_agent",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+output_jsonl_fpath=one.jsonl",
        "+limit=null",
        "+num_repeats=null",
        "+num_samples_in_parallel=null",
        "+responses_create_params={temperature: 0.5, max_output_tokens: 64}",
    )
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    assert len(rows) == len(EXAMPLES.read_text().splitlines())
    assert {row["responses_create_params"]["temperature"] for row in rows} == {0.5}


def test_flags_and_overrides_collect_the_same_rollouts(servers):
    folder, tell = servers
    done = tell(
        *("gym", "eval", "run", "--no-serve", "++responses_create_params.top_p=0.9", "--temperature", "0.5"),
        *("-a", "example_single_tool_call_simple_agent", "-i", "weather_query.jsonl", "--limit", "2"),
        *("-o", "mixed.jsonl", "+num_repeats=2", "--json", "--quiet"),
    )
    assert json.loads(done.out)["counts"]["scored"] == 4
    rows = [json.loads(line) for line in (folder / "mixed.jsonl").read_text().splitlines()]
    assert {(row["responses_create_params"][key] or 0) for row in rows for key in ("temperature", "top_p")} == {
        0.5,
        0.9,
    }


def test_shards_are_merged_and_rewards_profiled_as_in_the_examples(servers):
    folder, tell = servers
    for shard in ("a", "b"):
        done = tell(
            *("gym", "eval", "run", "--no-serve", "+disable_aggregation=true", "--num-repeats", "2", "--quiet"),
            *("-a", "example_single_tool_call_simple_agent", "-i", "weather_query.jsonl", "-o", f"shard_{shard}.jsonl"),
        )
        assert done.code == 0, done.err
    merged = tell("ng_aggregate_rollouts", "+input_glob=shard_a.jsonl", "+output_jsonl_fpath=all.jsonl")
    assert merged.code == 0, merged.err
    (agent,) = json.loads((folder / "all_aggregate_metrics.json").read_text())
    assert {"agent_ref", "agent_metrics", "key_metrics", "group_level_metrics"} <= set(agent)
    profiled = tell("gym", "eval", "profile", "--rollouts", "shard_b.jsonl", "--json")
    assert json.loads(profiled.out)["counts"]["scored"] == 2 * len(EXAMPLES.read_text().splitlines())
    assert (folder / "shard_b_reward_profiling.jsonl").is_file()


def test_the_config_is_dumped_without_its_secrets(servers):
    _, tell = servers
    done = tell("ng_dump_config", f"+config_paths=[{SERVER},{MODEL}]")
    assert done.code == 0
    assert "sk-hidden" not in done.out + done.err
    assert "policy_model_name: fake" in done.out


def test_a_config_is_valid_in_both_languages(servers):
    _, tell = servers
    for words in (("ng_validate", f"+config_paths=[{SERVER}]"), ("ng", "env", "validate", "--config", SERVER)):
        assert tell(*words).out == "✓ Config is valid.\n"


@pytest.mark.parametrize("alias", ["ng_version", "nemo_gym_version"])
def test_version_tells_everything_and_as_json(run, tmp_path, alias):
    text = run(tmp_path, alias).out
    assert text.startswith(f"NeMo Gym v{__version__}\nPython ")
    for part in ("Installation: ", "Key Dependencies:", "  openai: ", "  ray: ", "System:", "  OS: ", "  Memory: "):
        assert part in text
    facts = json.loads(run(tmp_path, alias, "+json=true").out)
    assert set(facts) == {"nemo_gym", "python", "python_path", "installation_path", "dependencies", "system"}
    assert facts == json.loads(run(tmp_path, "gym", "--version", "--json").out)


def test_a_server_is_made_and_its_packages_listed_as_in_the_examples(run, tmp_path):
    made = run(tmp_path, "ng_init_resources_server", "+entrypoint=resources_servers/my_server")
    assert made.code == 0, made.err
    folder = tmp_path / "resources_servers/my_server"
    assert all((folder / name).is_file() for name in ("app.py", "configs/my_server.yaml", "tests/test_app.py"))
    listed = run(tmp_path, "ng_pip_list", "+entrypoint=resources_servers/example_single_tool_call", "+format=json")
    assert {"name", "version"} <= set(json.loads(listed.out)[0])


@pytest.mark.slow
def test_a_server_is_tested_as_in_the_examples(tmp_path):
    done = subprocess.run(
        [str(BIN / "ng_test"), "+entrypoint=resources_servers/example_single_tool_call"],
        cwd=tmp_path,
        # Loading every plugin of this environment takes longer than everything else.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "passed" in done.stdout) == (0, True)


def test_example_data_is_prepared_as_in_the_examples(run, tmp_path):
    server = "resources_servers/example_multi_step"
    shutil.copytree(PARENT_DIR / server, tmp_path / server, ignore=shutil.ignore_patterns(".venv"))
    paths = f"+config_paths=[{server}/configs/example_multi_step.yaml,{MODEL}]"
    done = run(
        tmp_path, "ng_prepare_data", paths, "+output_dirpath=data/example_multi_step", "+mode=example_validation"
    )
    assert done.code == 0, done.err
    metrics = json.loads((tmp_path / "data/example_multi_step/example_metrics.json").read_text())
    assert metrics["Number of examples"] == 5
    assert len((tmp_path / "data/example_multi_step/example.jsonl").read_text().splitlines()) == 5


def test_an_agent_is_pointed_to_an_environment_by_an_override_alone(run, tmp_path):
    (tmp_path / "env.yaml").write_text("policy_base_url: http://x/v1\npolicy_api_key: k\npolicy_model_name: m\n")
    said = run(
        tmp_path,
        "ng_run",
        f"+config_paths=[{MODEL},resources_servers/multineedle/configs/multineedle.yaml]",
        "+simple_agent.responses_api_agents.simple_agent.resources_server.name=multineedle",
        "+dry_run=true",
    )
    assert said.code == 0, said.err
    assert "4 servers: " in said.out
    assert "no loaded config has a server 'simple_agent': taking what else it needs from " in said.err
    assert "no server is called 'multineedle'; it can only mean 'multineedle_resources_server'" in said.err
