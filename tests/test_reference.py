# SPDX-License-Identifier: Apache-2.0
"""The reference of the site is made from the code, and leaves nothing out."""

import json
import re

import pytest

from nemo_gym import PARENT_DIR

pytest.importorskip("griffe", reason="needs the group `docs`")

from nemo_gym.cli.command_table import list_commands
from scripts.reference import endpoints, files, hook, python_api, server_configs, settings
from scripts.reference.markdown import write_table

KINDS = list(server_configs.KINDS)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return hook.write_pages()


def test_every_command_appears_with_its_flags(pages):
    text = pages["reference/commands.md"]
    for name, command in list_commands().items():
        section = text.split(f"### gym {name}\n")[1].split("\n### ")[0]
        assert [flag.name for flag in command.flags if f"`{flag.name}`" not in section] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_server_appears_and_every_key_of_it_is_described(pages, kind):
    text = pages[f"reference/{hook.SERVER_PAGES[kind]}.md"]
    folders = {path.parent.name for path in (PARENT_DIR / kind).glob("*/app.py")}
    assert set(re.findall(r"^## (\w+)$", text, re.M)) == folders
    for name in folders:
        assert [key.name for key in server_configs.list_own_keys(kind, name) if not key.about] == []


def test_keys_are_read_without_running_the_code():
    keys = {key.name: key for key in server_configs.list_own_keys("resources_servers", "textarena")}
    assert keys  # whose library is not installed here
    model = {key.name: key for key in server_configs.list_own_keys("responses_api_models", "local_model")}
    assert model["context_length"].default == "2048"
    assert model["run_once"].default == "true"  # another default than that of other servers


def test_every_setting_is_described():
    assert [key.name for key in (*settings.list_settings(), *settings.list_server_keys()) if not key.about] == []


def test_every_endpoint_says_what_it_does():
    documents = endpoints.describe_servers()
    assert "/verify" in documents["Resources servers"]["paths"]
    for document in documents.values():
        for path, operations in document["paths"].items():
            for operation in operations.values():
                assert endpoints.describe_operation(path, operation)


def test_the_examples_of_file_formats_are_of_a_real_run_and_all_their_keys_are_described(pages):
    blocks = re.findall(r"^```json\n(.*?)^```$", pages["reference/files.md"], re.M | re.S)
    scored, failed, manifest, (agent,), planned = map(json.loads, blocks)
    carried = {"_ng_task_index", "_ng_rollout_index", "agent_ref"}
    assert scored["reward"] == 1.0
    assert scored.keys() <= files.ROW.keys() | files.SOMETIMES.keys()
    assert failed.keys() <= files.FAILED_ROW.keys() | carried
    assert failed["_ng_failure"].keys() <= files.FAILURE.keys()
    assert failed["_ng_failure"]["kind"] == "model_endpoint"
    assert manifest["counts"] == {
        "requested": 5,
        "scored": 4,
        "failed": 1,
        "not_played": 0,
        "by_kind": {"model_endpoint": 1},
    }
    assert manifest.keys() <= {key.name.rstrip("_") for key in server_configs.read_keys(files.MANIFEST)}
    assert agent.keys() <= files.METRICS.keys()
    assert agent["confidence"]["mean/reward"]["n_scored"] == 4
    assert planned.keys() <= files.PLAN.keys()


def test_no_page_names_a_folder_of_the_machine_that_built_it(pages):
    assert [place for place, text in pages.items() if str(PARENT_DIR) in text or "/tmp/" in text] == []


def test_a_pipe_ends_no_cell():
    assert write_table(("a", "b"), [("`int | None`", "x | y")]).splitlines()[2] == r"| `int | None` | x \| y |"


@pytest.mark.parametrize(
    ("html", "is_refused"),
    [
        ('<script src="https://unpkg.com/iframe-worker/shim"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ('<a href="https://example.org">a link</a> <script src="assets/bundle.js"></script>', False),
        ('<link rel="stylesheet" href="assets/main.css"><img alt="" src="images/viewer.png">', False),
    ],
)
def test_a_page_that_asks_another_host_is_noticed(html, is_refused):
    assert bool(hook.LOADED_FROM_ELSEWHERE.search(html)) is is_refused


# --- the public modules -----------------------------------------------------------------------------------------------


def test_every_public_module_and_package_is_listed_once_for_its_readers():
    folder = PARENT_DIR / "nemo_gym"
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    listed = [name for names in python_api.read_readers().values() for name in names]
    assert sorted(listed) == sorted(name for name in modules if not name.startswith("_"))


def test_an_alias_is_a_module_without_names_of_its_own():
    own = set(python_api.list_modules())
    aliases = python_api.read_readers()["aliases"]
    assert aliases
    assert own.isdisjoint(aliases)


def test_the_page_of_modules_says_for_whom_each_one_is(pages):
    page = pages["reference/python/index.md"]
    environments, _, rest = page.partition("## For agents and trainers")
    assert "[nemo_gym.grading](grading.md)" in environments
    assert "[nemo_gym.adapters." in environments
    assert "[nemo_gym.trajectories](trajectories.md)" in rest.partition("## For code written for NeMo Gym")[0]
    assert all(f"[nemo_gym.{name}]({name}.md)" in page for name in python_api.list_modules())
