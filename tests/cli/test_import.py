# SPDX-License-Identifier: Apache-2.0
"""`gym import` and `gym list environments --from`, with adapters of a user's own in place of those that come along."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym._util.search_root_finder import SERVER_TYPES
from nemo_gym.testing import reply
from tests.servers.wheelhouse import add_wheel

CONFIG = """\
gem_gym:
  resources_servers:
    gem_gym: {entrypoint: app.py, domain: games, max_steps: 3}
gem_gym_gymnasium_agent:
  responses_api_agents:
    gymnasium_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: gem_gym}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: example, type: example, jsonl_fpath: resources_servers/gem_gym/data/example.jsonl}
"""
CATALOG = """
import os, random, sys
from nemo_gym.errors import GymError

print("a library that greets its users")
COLOURS = list({"red", "green", "blue", "cyan", "plum"})

def list_environments():
    return [{"id": "game:Guess-v0", "description": "Guess a number"}, {"id": "game:Words-v0", "description": "Spell"}]

def make_rows(environment_id, rows, seed, options):
    if environment_id == "unknown":
        raise GymError("there is no 'unknown'. Did you mean 'game:Guess-v0'?")
    if environment_id == "bug":
        raise KeyError("levels")
    if environment_id == "crash":
        print("out of luck", file=sys.stderr)
        os._exit(3)
    if environment_id == "empty":
        return []
    chance = random.Random(seed)
    return [
        {"responses_create_params": {"input": "Guess"}, "secret": chance.random(), "options": options, "set": COLOURS}
        for _ in range(min(rows, 9))
    ]
"""


def write_adapter(root: Path, folder: str, catalog: str, config: str) -> Path:
    place = root / folder
    (place / "configs").mkdir(parents=True)
    (place / "app.py").write_text("")
    (place / "catalog.py").write_text(dedent(catalog))
    (place / "configs" / f"{place.name}.yaml").write_text(config)
    return place


@pytest.fixture
def adapter(tmp_path) -> Path:
    return write_adapter(tmp_path, SYSTEMS["gem"].folder, CATALOG, CONFIG)


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_import_writes_a_config_and_a_dataset_and_says_how_to_play_them(adapter, gym):
    said = gym("import", "gem:game:Guess-v0", "--rows", "3", "--output-dir", "out")
    assert said.code == 0, said.err
    assert sorted(path.name for path in Path("out").iterdir()) == ["gem_game_Guess_v0.jsonl", "gem_game_Guess_v0.yaml"]
    assert said.out.splitlines()[-1].strip() == (
        "gym eval run --config out/gem_game_Guess_v0.yaml --output results/gem_game_Guess_v0.jsonl"
    )
    assert len(read_rows(Path("out/gem_game_Guess_v0.jsonl"))) == 3
    text = Path("out/gem_game_Guess_v0.yaml").read_text()
    assert text.startswith("# gym import gem:game:Guess-v0 --rows 3 --seed 0\n")
    assert yaml.safe_load(text) == {
        "gem_game_Guess_v0": {
            "resources_servers": {"gem_gym": {"entrypoint": "app.py", "domain": "games", "max_steps": 3}}
        },
        "gem_game_Guess_v0_gymnasium_agent": {
            "responses_api_agents": {
                "gymnasium_agent": {
                    "entrypoint": "app.py",
                    "resources_server": {"type": "resources_servers", "name": "gem_game_Guess_v0"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                    "datasets": [
                        {
                            "name": "gem_game_Guess_v0",
                            "type": "example",
                            "jsonl_fpath": "out/gem_game_Guess_v0.jsonl",
                            "num_repeats": 1,
                        }
                    ],
                }
            }
        },
    }


@pytest.mark.parametrize(
    ("environment_id", "name"),
    [
        ("tasks/dummy", "gem_tasks_dummy"),
        ("/some/where/count.py:Count", "gem_count_py_Count"),
        ("http://127.0.0.1:8000/x", "gem_http_127_0_0_1_8000_x"),
    ],
)
def test_files_and_servers_are_named_after_the_system_and_the_id(adapter, gym, environment_id, name):
    said = json.loads(gym("import", f"gem:{environment_id}", "-o", "out", "--json").out)
    assert said["config"] == f"out/{name}.yaml"
    assert list(yaml.safe_load(Path(said["config"]).read_text())) == [name, f"{name}_gymnasium_agent"]


def test_the_seed_decides_what_is_written_byte_by_byte(adapter, gym):
    def write(seed: int) -> dict[str, bytes]:
        said = gym("import", "gem:game:Guess-v0", "--rows=4", f"--seed={seed}", "-o", "out", "--overwrite")
        assert said.code == 0, said.err
        return {path.name: path.read_bytes() for path in Path("out").iterdir()}

    assert write(1) == write(1)
    assert write(1) != write(2)


def test_what_is_there_is_kept_unless_it_is_the_same_or_may_be_replaced(adapter, gym):
    command = ("import", "gem:game:Guess-v0", "-o", "out")
    assert gym(*command, "--rows", "2").code == 0
    assert gym(*command, "--rows", "2").code == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    said = gym(*command, "--rows", "3")
    assert (said.code, {path: path.read_bytes() for path in Path("out").iterdir()}) == (1, before)
    assert "out/gem_game_Guess_v0.jsonl" in said.err
    assert "--overwrite" in said.err
    assert gym(*command, "--rows", "3", "--overwrite").code == 0
    assert len(read_rows(Path("out/gem_game_Guess_v0.jsonl"))) == 3


def test_options_are_json_or_text_and_secrets_stay_out_of_the_config(adapter, gym):
    options = ['level={"depth": [1, 2]}', "name=a, b=c", "hub_token=hush"]
    words = [word for option in options for word in ("--option", option)]
    assert gym("import", "gem:game:Guess-v0", "--rows", "1", "-o", "out", *words).code == 0
    (row,) = read_rows(Path("out/gem_game_Guess_v0.jsonl"))
    assert row["options"] == {"level": {"depth": [1, 2]}, "name": "a, b=c", "hub_token": "hush"}
    assert "hush" not in Path("out/gem_game_Guess_v0.yaml").read_text()


def test_fewer_rows_than_asked_for_are_a_note(adapter, gym):
    said = gym("import", "gem:game:Guess-v0", "--rows", "20", "-o", "out", "--json")
    assert json.loads(said.out) == {
        "schema": 1,
        "environment": "gem:game:Guess-v0",
        "config": "out/gem_game_Guess_v0.yaml",
        "dataset": "out/gem_game_Guess_v0.jsonl",
        "rows": 9,
        "command": "gym eval run --config out/gem_game_Guess_v0.yaml --output results/gem_game_Guess_v0.jsonl",
    }
    assert "has 9 rows, not 20" in said.err


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("gems:game:Guess-v0", 2, "Did you mean 'gem'?"),
        ("chess", 2, "there is no 'chess'. available: 'atropos'"),
        ("gem", 2, "which environment of gem? Write gem:ID"),
        ("gem:unknown", 1, "there is no 'unknown'. Did you mean 'game:Guess-v0'?"),
        ("gem:bug", 1, "catalog.py failed: KeyError: 'levels'"),
        (
            "gem:crash",
            1,
            "catalog.py ended without an answer, exit code 3. Its last lines:\na library that greets its users\n",
        ),
        ("gem:empty", 1, "gem:empty has no rows"),
    ],
)
def test_what_cannot_be_imported_is_told_without_a_traceback_and_writes_nothing(adapter, gym, name, code, told):
    said = gym("import", name, "-o", "out")
    assert said.code == code
    assert told in said.err
    assert "Traceback" not in said.err
    assert not Path("out").exists()


def test_an_option_without_a_value_is_refused(adapter, gym):
    said = gym("import", "gem:game:Guess-v0", "--option", "level")
    assert (said.code, "key=value" in said.err) == (2, True)


def test_a_catalog_may_add_to_the_config_of_the_server_and_of_the_agent(tmp_path, gym):
    config = 'def make_config(environment_id, options): return {"server": {"max_steps": 9}, "agent": {"max_steps": 60}}'
    write_adapter(tmp_path, SYSTEMS["gem"].folder, f"{CATALOG}\n{config}", CONFIG)
    assert gym("import", "gem:game:Guess-v0", "-o", "out").code == 0
    blocks = yaml.safe_load(Path("out/gem_game_Guess_v0.yaml").read_text())
    assert blocks["gem_game_Guess_v0"]["resources_servers"]["gem_gym"]["max_steps"] == 9
    agent = blocks["gem_game_Guess_v0_gymnasium_agent"]["responses_api_agents"]["gymnasium_agent"]
    assert agent["max_steps"] == 60


@pytest.mark.exhaustive
@pytest.mark.network
def test_packages_that_an_environment_needs_are_installed_and_put_into_the_config(tmp_path, gym, monkeypatch):
    catalog = """
        from importlib.metadata import PackageNotFoundError, version
        from nemo_gym.errors import GymError

        def make_config(environment_id, options):
            return {"requirements": options["also"], "harness": "null"} if options else {}

        def make_rows(environment_id, rows, seed, options):
            try:
                version(environment_id)
            except PackageNotFoundError:
                raise GymError(f"there is no {environment_id!r}")
            return [{"responses_create_params": {"input": "?"}, "versions": [version("widget"), version("gadget")]}]
    """
    config = """\
        verifiers_env:
          responses_api_agents:
            verifiers_env:
              entrypoint: app.py
              model_server: {type: responses_api_models, name: policy_model}
    """
    write_adapter(tmp_path, SYSTEMS["verifiers"].folder, catalog, dedent(config))
    widget = add_wheel(tmp_path / "wheels", "widget", "1.0")
    gadget = add_wheel(tmp_path / "wheels", "gadget", "2.0")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    words = ("-o", "out", "--json", "--option", f'also=["{gadget}"]', f"+cache_dir={tmp_path / 'cache'}")

    def write(*more: str) -> tuple[list[str], dict]:
        said = gym("import", *more, *words, "--overwrite")
        assert said.code == 0, said.err
        assert "(verifiers_env) building an environment: " in said.err
        files = json.loads(said.out)
        (block,) = yaml.safe_load(Path(files["config"]).read_text()).values()
        (row,) = read_rows(Path(files["dataset"]))
        return row["versions"], block["responses_api_agents"]["verifiers_env"]

    versions, agent = write("verifiers:widget")
    assert (versions, agent["requirements"]) == (["1.0", "2.0"], ["widget", str(gadget)])
    assert (agent["harness"], agent["datasets"][0]["jsonl_fpath"]) == ("null", "out/verifiers_widget.jsonl")
    versions, agent = write("verifiers:widget", "--requirement", os.path.relpath(widget))
    assert (versions, agent["requirements"]) == (["1.0", "2.0"], [str(widget), str(gadget)])
    said = gym("import", "verifiers:no-such-package-anywhere", "-o", "out")
    assert said.code == 1
    assert "there is no 'no-such-package-anywhere'\nNor can a package of that name be installed: " in said.err


# --- what a system offers ---------------------------------------------------------------------------------------------


def test_the_environments_of_a_system_are_listed(adapter, gym):
    said = gym("list", "environments", "--from", "gem")
    title, _, _, *rows = said.out.splitlines()
    assert title == "Environments of gem (2)"
    assert [row.split(maxsplit=1) for row in rows] == [["game:Guess-v0", "Guess a number"], ["game:Words-v0", "Spell"]]
    (one,) = json.loads(gym("list", "environments", "--from", "gem", "game:Words-v0", "--json").out)
    assert one == {"id": "game:Words-v0", "description": "Spell"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "gen"], "'gen' is not one of"),
        (["--from", "reasoning-gym"], "Did you mean 'reasoning_gym'?"),
        (["--from"], "flag '--from' needs a value, one of atropos, "),
        (["--from", "gem", "game:Word-v0"], "gem offers no environment 'game:Word-v0'. Did you mean 'game:Words-v0'?"),
        (["--from", "gem", "--domain", "math"], "domain: not available for environments of other systems"),
    ],
)
def test_a_system_or_an_environment_that_is_not_there_is_named(adapter, gym, words, told):
    said = gym("list", "environments", *words)
    assert said.code in (1, 2)
    assert told in said.err


def test_every_folder_with_a_catalog_is_a_system():
    found = {f"{kind}/{path.parent.name}" for kind in SERVER_TYPES for path in (PARENT_DIR / kind).glob("*/catalog.py")}
    assert found == {system.folder for system in SYSTEMS.values()}


def test_the_guide_lists_the_systems_and_their_folders():
    page = (PARENT_DIR / "docs" / "guides" / "other-gyms.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| `(\S+)` \|", page, re.M)
    assert rows == [(system.name, system.folder) for system in SYSTEMS.values()]


# --- from the import to a score ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("output_dir", ["../beside", pytest.param("absolute", marks=pytest.mark.exhaustive)])
def test_the_printed_command_plays_what_was_imported(tmp_path, unused_tcp_port, output_dir):
    here = tmp_path / "here"
    here.mkdir()
    place = tmp_path / "elsewhere" if output_dir == "absolute" else output_dir
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True)

    words = ["reasoning_gym:chain_sum", "--rows", "6", "--seed", "5", "--output-dir", str(place), "--json"]
    imported = json.loads(run(["gym", "import", *words]).stdout)
    rows = read_rows(here / imported["dataset"])
    recorded = [
        {
            "responses_create_params": row["responses_create_params"],
            "response": reply(f"<answer>{row['answer'] if number % 2 else 'none'}</answer>").model_dump(mode="json"),
            "_ng_task_index": number,
            "_ng_rollout_index": 0,
        }
        for number, row in enumerate(rows)
    ]
    (here / "recorded.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in recorded))
    model = {
        "responses_api_models": {"replay_model": {"entrypoint": "app.py", "rollouts_jsonl_fpath": "recorded.jsonl"}}
    }
    (here / "env.yaml").write_text(
        yaml.safe_dump({"policy_model": model, "head_server": {"host": "127.0.0.1", "port": unused_tcp_port}})
    )
    said = run(shlex.split(imported["command"]))
    assert "6 scored of 6 requested, 0 failed" in said.stdout
    played = read_rows(here / "results/reasoning_gym_chain_sum.jsonl")
    assert [one["reward"] for one in sorted(played, key=lambda one: one["_ng_task_index"])] == [0, 1, 0, 1, 0, 1]
