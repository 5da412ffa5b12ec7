# SPDX-License-Identifier: Apache-2.0
"""What users get wrong. Each message names the thing, its place and the fix; there is no traceback unless asked for."""

import os
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.support.catalogue import server_block, write_config

SERVER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
REPLAYED = (
    *("--resources-server", "example_multi_step", "--model-type", "replay_model"),
    "++policy_model.responses_api_models.replay_model.rollouts_jsonl_fpath="
    "resources_servers/example_multi_step/data/example_rollouts.jsonl",
)


def expect(said, code: int, *parts: str) -> None:
    assert (said.code, said.out) == (code, ""), said
    assert f"\n{said.err}".count("\nError: ") == 1, said.err
    assert "Traceback" not in said.err
    missing = [part for part in parts if part not in said.err]
    assert not missing, f"{missing} not in:\n{said.err}"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["evn", "start"], ["there is no command 'evn'", "Did you mean 'env'?", "gym --help"]),
        (["serach", "x"], ["there is no command 'serach'", "Did you mean 'search'?"]),
        (["start"], ["there is no command 'start'", "Did you mean 'gym env start'?"]),
        (["env", "strat"], ["`gym env` has no command 'strat'", "Did you mean 'start'?", "gym env -h"]),
        (["--verison"], ["unknown flag '--verison'", "Did you mean '--version'?"]),
        (["frobnicate"], ["there is no command 'frobnicate'", "gym --help"]),
    ],
)
def test_a_mistyped_command(gym, words, parts):
    expect(gym(*words), 2, *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["env", "start", "--modle", "x"], ["unknown flag '--modle'", "Did you mean '--model'?"]),
        (["eval", "run", "--temprature=0.5"], ["unknown flag '--temprature'", "Did you mean '--temperature'?"]),
        (["list", "benchmarks", "--jsn"], ["unknown flag '--jsn'", "Did you mean '--json'?"]),
        (["list", "environments", "--status", "experimentl"], ["--status", "Did you mean 'experimental'?"]),
    ],
)
def test_a_mistyped_flag(gym, words, parts):
    expect(gym(*words), 2, *parts)


@pytest.mark.parametrize(
    ("flag", "value", "implied", "meant"),
    [
        ("--resources-server", "example_mutli_step", "configs/example_mutli_step.yaml", "'example_multi_step'"),
        ("--resources-server", "example_multi_step/hard", "configs/hard.yaml", "'example_multi_step'"),
        ("--model-type", "openai_modle", "configs/openai_modle.yaml", "'openai_model'"),
    ],
)
def test_a_mistyped_selector(gym, flag, value, implied, meant):
    expect(gym("env", "start", flag, value), 2, f"{flag} {value}", implied, f"Did you mean {meant}?", "looked in: ")


def test_a_mistyped_server_reference(gym, tmp_path):
    config = write_config(
        tmp_path,
        "mine.yaml",
        f"""
        config_paths: [{SERVER}]
        example_single_tool_call_simple_agent:
          responses_api_agents:
            simple_agent:
              resources_server: {{name: example_singel_tool_call}}
        """,
    )
    for command in ("validate", "start"):
        expect(
            gym("env", command, "--config", str(config)),
            1,
            "'example_single_tool_call_simple_agent' refers to resources_servers 'example_singel_tool_call'",
            "mine.yaml:6",
            "Did you mean 'example_single_tool_call'?",
            "hint: ",
        )


def test_a_mistyped_config_path(gym):
    wrong = SERVER.replace("example_single_tool_call.yaml", "example_singel_tool_call.yaml")
    expect(
        gym("env", "validate", "--config", wrong),
        1,
        f"config file {wrong!r}, named by command line, was not found",
        str(PARENT_DIR / wrong),
        f"Did you mean {SERVER!r}?",
    )


def test_a_mistyped_path_in_a_config_names_the_line(gym, tmp_path):
    config = write_config(tmp_path, "mine.yaml", "a: 1\nconfig_paths:\n- nowhere.yaml\n")
    expect(gym("env", "validate", "--config", str(config)), 1, "'nowhere.yaml'", "mine.yaml:3", "was not found")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("+a=[1,2", ["'+a=[1,2'", "1 `[` but 0 `]` make no list", "hint: "]),
        ("+a=1,2", ["'+a=1,2'", "several values", "a=[1,2]"]),
        ("+a={b: 1", ["'+a={b: 1'", "make no mapping"]),
        ("+a='x", ["a quote (') is not closed"]),
        ("+a", ["'+a'", "it has no `=`", "+a=<value>"]),
        ("+policy_api_key=sk,[secret", ["policy_api_key", "does not follow the grammar"]),
    ],
)
def test_an_override_with_bad_syntax(gym, override, parts):
    said = gym("env", "start", "--config", SERVER, override)
    expect(said, 1, *parts)
    assert "secret" not in said.err.replace("it is a secret", "")


def test_a_missing_required_value_of_a_command(gym):
    expect(gym("eval", "run", "--no-serve"), 2, "output_jsonl_fpath", "its flag", "+output_jsonl_fpath=<value>")
    expect(gym("eval", "aggregate"), 2, "missing required configuration: input_glob, output_jsonl_fpath")


def test_a_value_of_the_wrong_type(gym):
    said = gym("eval", "run", "--no-serve", "--output", "o.jsonl", "--limit", "many")
    expect(said, 2, "invalid configuration: limit must be a whole number, not 'many'")


def test_missing_required_values_of_a_config_are_reported_at_once(gym, tmp_path):
    settings = "entrypoint: app.py\ndomain: math\nurl: ???\nkey: ???"
    config = write_config(
        tmp_path, "mine.yaml", server_block("mine", "resources_servers", "example_multi_step", settings)
    )
    path = "mine.resources_servers.example_multi_step"
    expect(
        gym("env", "validate", "--config", str(config)), 1, f"{path}.url", f"{path}.key", "mine.yaml:", f"++{path}.url="
    )


def test_a_config_file_that_is_a_directory(gym):
    folder = "resources_servers/example_multi_step"
    for command in ("validate", "start"):
        said = gym("env", command, "--config", folder)
        expect(
            said, 1, f"config file {folder!r}, named by command line, is a folder: ", f"{folder}/configs/example_multi"
        )


def _unwritable(tmp_path: Path) -> Path:
    """A folder in which nobody may make a file: for the superuser the kernel's own."""
    if os.geteuid() == 0:
        return Path("/sys")
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    return folder


def test_an_output_that_may_not_be_written(gym, tmp_path):
    folder = _unwritable(tmp_path)
    if not folder.is_dir():
        pytest.skip("there is no place that the superuser may not write to")
    said = gym("eval", "run", *REPLAYED, "--output", str(folder / "r.jsonl"))
    expect(
        said, 1, str(folder / "r"), "could not be written", "hint: choose an output in a folder that you may write to"
    )


def test_an_output_below_a_file(gym, tmp_path):
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "r.jsonl")
    expect(gym("eval", "run", *REPLAYED, "--output", below), 1, str(tmp_path / "file"), "hint: ")
    rollouts = str(PARENT_DIR / "resources_servers/example_multi_step/data/example_rollouts.jsonl")
    said = gym("eval", "aggregate", "--input-glob", rollouts, "--output", below)
    expect(said, 1, str(tmp_path / "file"), "hint: a file stands where a folder is needed")


def test_a_server_folder_without_its_code(gym, tmp_path):
    block = server_block("hollow", "resources_servers", "hollow", "entrypoint: app.py\ndomain: other")
    write_config(tmp_path, "resources_servers/hollow/configs/hollow.yaml", block)
    folder = str(tmp_path / "resources_servers/hollow")
    expect(gym("env", "validate", "--resources-server", "hollow"), 1, "hollow", "'app.py'", folder)
    said = gym("env", "start", "--resources-server", "hollow")
    expect(said, 1, "'hollow'", f"{folder}/app.py", "hint: `entrypoint` is relative to the folder")


def test_verbose_shows_where_an_error_comes_from(gym):
    for words in (("-v", "eval", "run", "--no-serve"), ("eval", "run", "--no-serve", "--verbose")):
        said = gym(*words)
        assert (said.code, "Traceback" in said.err) == (2, True)
        assert "\nError: missing required configuration: output_jsonl_fpath" in said.err
