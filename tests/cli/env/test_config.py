# SPDX-License-Identifier: Apache-2.0
"""`gym env validate` names every mistake at once; `gym env resolve` says what a config comes to and who says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nemo_gym.cli import legacy
from nemo_gym.cli.main import run_command

SERVER = {"entrypoint": "app.py", "domain": "agent"}
AGENT = {
    "entrypoint": "app.py",
    "resources_server": {"type": "resources_servers", "name": "shop"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
APP = """
class Base:
    depth: int

class ShopConfig(Base):
    prices_file: str
    max_visitors: int = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with one server of its own."""
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "resources_servers" / "shop"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    return tmp_path


def written(here: Path, config: dict) -> str:
    path = here / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return str(path)


def shop(**more) -> dict:
    return {"shop": {"resources_servers": {"shop": {**SERVER, **more}}}}


def agent(**more) -> dict:
    return {"shop_agent": {"responses_api_agents": {"simple_agent": {**AGENT, **more}}}}


def problems(config: str, capsys, *words: str) -> list[str]:
    code = run_command(["env", "validate", "--config", config, "--json", *words])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["valid"] else 1)
    return [problem["message"] for problem in found["problems"]]


def test_a_valid_config_says_so_and_needs_no_model(here, capsys):
    config = written(here, {**shop(max_visitors=1), **agent(max_steps=4)})
    assert run_command(["env", "validate", "--config", config]) == 0
    assert capsys.readouterr().out == "✓ Config is valid.\n"
    assert problems(config, capsys) == []


@pytest.mark.parametrize(
    ("config", "key", "meant"),
    [
        (shop(max_visitor=1), "shop.resources_servers.shop.max_visitor", "max_visitors"),
        (shop(price_file="x"), "shop.resources_servers.shop.price_file", "prices_file"),
        (shop(verifed=True), "verifed", "verified"),
        ({**shop(), **agent(max_step=1)}, "max_step", "max_steps"),
        ({"shop": {"resources_servers": {"shop": {"entrypiont": "app.py"}}}}, "entrypiont", "entrypoint"),
        ({"shop": {"resource_servers": {"shop": SERVER}}}, "shop.resource_servers", "resources_servers"),
        ({**shop(), "head_sever": {"port": 1}}, "head_sever", "head_server"),
        ({**shop(), "policy_modle_name": "x"}, "policy_modle_name", "policy_model_name"),
        ({**shop(), "config_path": ["x.yaml"]}, "config_path", "config_paths"),
        (
            {
                **shop(),
                **agent(datasets=[{"name": "x", "type": "example", "jsonl_fpath": "x", "licence": "MIT"}]),
            },
            "datasets.0.licence",
            "license",
        ),
        (
            {**shop(), **agent(judge={"type": "responses_api_model", "name": "policy_model"})},
            "judge.type",
            "responses_api_models",
        ),
    ],
)
def test_a_mistyped_key_is_found_with_its_line_and_the_nearest_one(here, capsys, config, key, meant):
    found = [text for text in problems(written(here, config), capsys) if f"Did you mean {meant!r}?" in text]
    assert len(found) == 1
    assert key in found[0]
    assert "config.yaml:" in found[0]


@pytest.mark.parametrize(
    "config",
    [
        shop(depth=1, prices_file="x", something_else=1),
        shop(max_visitors=1, max_visitor=2),
        {**shop(prices_file="${policy_modle_name}"), "policy_modle_name": "x"},
        {**shop(), "my_own_setting": 1},
    ],
    ids=["own keys", "both are there", "somebody refers to it", "nothing resembles it"],
)
def test_keys_that_may_be_meant_are_left_alone(here, capsys, config):
    assert problems(written(here, config), capsys) == []


def test_a_config_class_that_takes_any_field_has_no_mistyped_ones(here, capsys):
    (here / "resources_servers/shop/app.py").write_text(
        f"{APP}\nclass ShopServerConfig(ShopConfig):\n    model_config = ConfigDict(extra='allow')\n"
    )
    assert problems(written(here, shop(max_visitor=1)), capsys) == []


def test_an_implementation_that_is_not_there_is_named_with_the_nearest(here, capsys):
    (found,) = problems(written(here, {"shop": {"resources_servers": {"shpo": SERVER}}}), capsys)
    assert "there is no implementation 'shpo'. Did you mean 'shop'?" in found


def test_a_server_folder_without_its_entrypoint_is_a_mistake(here, capsys):
    (here / "resources_servers/shop/app.py").rename(here / "resources_servers/shop/main.py")
    (found,) = problems(written(here, shop()), capsys)
    assert "its entrypoint 'app.py' is not in" in found


def test_two_servers_with_one_port_are_a_mistake(here, capsys):
    config = {**shop(port=5000), "other": {"resources_servers": {"shop": {**SERVER, "port": 5000}}}}
    assert problems(written(here, config), capsys) == ["port 5000 was given to 2 servers: 'shop', 'other'"]


def test_all_mistakes_come_at_once_with_numbers(here, capsys):
    config = {
        **shop(domain="agnt"),
        **agent(max_step=1, resources_server={"type": "resources_servers", "name": "shpo"}),
        "missing": "???",
        "nowhere": "${no.such.key}",
        "heir": {"_inherit_from": "nobody"},
        "head_sever": {},
    }
    assert run_command(["env", "validate", "--config", written(here, config)]) == 1
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    for text in ("missing", "no.such.key", "'agent'", "'shpo'", "nobody", "'max_steps'", "'head_server'", "[7]"):
        assert text in err


def test_a_config_without_a_server_is_a_mistake(here, capsys):
    (found,) = problems(written(here, {"limit": 3}), capsys)
    assert "defines no server" in found


def test_a_name_stands_for_its_config(here, capsys):
    assert run_command(["env", "validate", "example_multi_step"]) == 0
    assert run_command(["env", "validate", "example_multi_stp"]) == 2
    assert "Did you mean 'example_multi_step'?" in capsys.readouterr().err


def test_validating_loads_neither_ray_nor_a_web_server(here):
    heavy = "{'ray', 'fastapi', 'uvicorn', 'openai', 'aiohttp'}"
    code = (
        "import sys; from nemo_gym.cli.main import main; main(['env', 'validate', 'example_multi_step']);"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["✓ Config is valid.", "[]"]


# --- resolve ----------------------------------------------------------------------------------------------------------


def explained(here: Path, capsys, key: str, *words: str) -> list[dict]:
    (here / "env.yaml").write_text("policy_api_key: sk-one\ndepth: 2\n")
    config = written(here, {**shop(depth="${depth}", url="http://me:pw@host/"), "depth": 1})
    assert run_command(["env", "resolve", "--config", config, "--explain", key, "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_key_is_explained_with_who_set_it_and_what_that_overrides(here, capsys):
    (one,) = explained(here, capsys, "depth", "++depth=3")
    assert (one["key"], one["value"], one["source"]) == ("depth", 3, "command line")
    assert [source["value"] for source in one["sources"]] == [3, 2, 1]
    assert one["sources"][1]["place"] == "env.yaml:2"
    assert one["sources"][2]["place"].endswith("config.yaml:8")


def test_an_env_yaml_of_another_folder_is_named_in_full(here, capsys, monkeypatch):
    (here / "env.yaml").write_text("depth: 2\n")
    (here / "notes").mkdir()
    monkeypatch.chdir(here / "notes")
    assert run_command(["env", "resolve", "--explain", "depth"]) == 0
    explained = capsys.readouterr()
    assert f"set by    {here / 'env.yaml'}:1: 2" in explained.out
    for command in ("resolve", "validate", "status"):
        run_command(["env", command])
        assert f"settings are read from {here / 'env.yaml'}\n" in capsys.readouterr().err
    monkeypatch.chdir(here)
    run_command(["env", "resolve"])
    assert "settings are read" not in capsys.readouterr().err


def test_a_value_that_is_taken_from_another_key_names_it(here, capsys):
    (one,) = explained(here, capsys, "shop.resources_servers.shop.depth")
    assert (one["value"], one["refers_to"]) == (2, [{"key": "depth", "source": "env.yaml:2"}])


def test_a_block_is_explained_key_by_key_and_secrets_stay_hidden(here, capsys):
    found = explained(here, capsys, "shop")
    assert [one["key"].rpartition(".")[2] for one in found] == ["entrypoint", "domain", "depth", "url"]
    (secret,) = explained(here, capsys, "policy_api_key")
    text = json.dumps([found, secret])
    assert "sk-one" not in text
    assert "pw" not in text
    assert "http://****@host/" in text


def test_an_inherited_value_says_where_it_was_inherited_from(here, capsys):
    config = written(here, {**shop(depth=1), "heir": {"_copy": "shop"}})
    key = "heir.resources_servers.shop.depth"
    assert run_command(["env", "resolve", "--config", config, "--explain", key, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["sources"][0]["inherited_from"] == "shop.resources_servers.shop.depth"


def test_a_key_of_a_config_with_mistakes_is_explained_all_the_same(here, capsys):
    config = written(here, {**shop(domain="agnt"), "gone": "???"})
    assert run_command(["env", "resolve", "--config", config, "--explain", "shop.resources_servers.shop.domain"]) == 0
    assert "set by" in capsys.readouterr().out


def test_a_key_that_is_not_there_is_an_error_with_the_nearest(here, capsys):
    config = written(here, {**shop(), "depth": 1})
    assert run_command(["env", "resolve", "--config", config, "--explain", "dept"]) == 1
    assert "Did you mean 'depth'?" in capsys.readouterr().err


def test_the_older_command_prints_the_config_too(here, capsys, monkeypatch):
    references = {"url": "http://x/${max_output_tokens}?t=${my_token}"}
    config = written(here, {**shop(), "my_token": "sk-two", "max_output_tokens": 7, **references})
    monkeypatch.setattr(sys, "argv", ["ng_dump_config", f"+config_paths=[{config}]"])
    assert legacy.run_alias() == 0
    out = yaml.safe_load(capsys.readouterr().out)
    assert (out["my_token"], out["max_output_tokens"]) == ("****", 7)
    assert out["url"] == "http://x/7?t=****"
