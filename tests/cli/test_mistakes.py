# SPDX-License-Identifier: Apache-2.0
"""What users get wrong. Each message names the thing, its place and the fix; there is no traceback unless asked for."""

import os
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.support.catalog import server_block, write_config

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
    expect(
        gym("eval", "run", "--no-serve"), 2, "output_jsonl_fpath", "its flag (--output", "+output_jsonl_fpath=<value>"
    )
    said = gym("eval", "aggregate")
    expect(said, 2, "missing required configuration: input_glob, output_jsonl_fpath.", "(--input-glob, --output; ")
    expect(gym("view"), 2, "missing required configuration: jsonl_fpath.", "its argument (FILE; ")


def test_what_is_personal_belongs_into_env_yaml(gym):
    said = gym("dataset", "upload")
    expect(said, 2, "(--input, --resource-config; ", "Put hf_token, hf_organization, ", " into env.yaml")
    assert "+hf_" not in said.err


@pytest.mark.parametrize("version", ["1", "1.2"])
def test_a_version_that_is_a_number(gym, version):
    expect(gym("dataset", "upload", "--storage", "gitlab", f"+version={version}"), 2, "x.x.x", f"not {version}")


def test_rollouts_without_the_plan_of_their_run(gym):
    Path("r.jsonl").write_text("{}\n")
    said = gym("eval", "profile", "--rollouts", "r.jsonl")
    expect(said, 1, "'r_materialized_inputs.jsonl'", "the plan of the run", "`gym eval run` writes it", "--inputs FILE")


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
        said, 1, str(folder / "r"), "could not be written", "hint: choose an output in a folder that you can write to"
    )


def test_an_output_below_a_file(gym, tmp_path):
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "r.jsonl")
    said = gym("eval", "run", *REPLAYED, "--output", below)
    expect(said, 1, f"{below} could not be written", f"hint: '{tmp_path / 'file'}' is not a folder")
    assert "lock" not in said.err
    rollouts = str(PARENT_DIR / "resources_servers/example_multi_step/data/example_rollouts.jsonl")
    said = gym("eval", "aggregate", "--input-glob", rollouts, "--output", below)
    expect(said, 1, str(tmp_path / "file"), "hint: there is a file where a folder is needed")


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


# --- overrides that would have no effect ------------------------------------------------------------------------------

AGENT = "example_multi_step_simple_agent"
IN_AGENT = f"{AGENT}.responses_api_agents.simple_agent"
TASKS = "resources_servers/example_multi_step/data/example.jsonl"
COMMANDS = {
    "eval run": ("eval", "run", *REPLAYED, "-o", "r.jsonl"),
    "env start": ("env", "start", *REPLAYED),
    "dry run": ("env", "start", "+dry_run=true", *REPLAYED),
    "env validate": ("env", "validate", *REPLAYED),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_that_takes_a_config_refuses_what_would_have_no_effect(gym, command):
    expect(
        gym(
            *command,
            "+num_repeat=3",
            f"++{IN_AGENT}.max_steps=abc",
            "+example_multi_step_simple_agnet.responses_api_agents.simple_agent.max_steps=3",
            "++head_server.port=abc",
        ),
        2,
        "num_repeat (command line): nothing reads 'num_repeat'. Did you mean 'num_repeats'?",
        f"{IN_AGENT}.max_steps (command line): must be a whole number, not 'abc'",
        "no loaded config has a server 'example_multi_step_simple_agnet'",
        f"Did you mean '{AGENT}'?",
        "'head_server.port' must be a port number, but it is 'abc'",
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["+limitt=2"], ["nothing reads 'limitt'. Did you mean 'limit'?", "+allow_unknown_keys=true"]),
        (["+num_repeats=1", "+num_repeat=3"], ["nothing reads 'num_repeat'. Did you mean 'num_repeats'?"]),
        (["+frobnicate=1"], ["frobnicate (command line): nothing reads 'frobnicate'.\nhint: "]),
        (["+wandb_projct=x"], ["Did you mean 'wandb_project'?"]),
        ([f"++{IN_AGENT}.max_step=3"], ["nothing reads 'max_step'. Did you mean 'max_steps'?"]),
        ([f"++{IN_AGENT}.max_steps=3", f"++{IN_AGENT}.max_step=3"], ["nothing reads 'max_step'."]),
        ([f"++{IN_AGENT}.resources_server.nam=x"], ["nothing reads 'nam'. Did you mean 'name'?"]),
        ([f"++{AGENT}.max_steps=3"], [f"{AGENT}.max_steps", "nothing reads it there", f"`++{IN_AGENT}.max_steps=…`"]),
        (["++head_server.prot=3"], ["head_server.prot (command line): nothing reads 'prot'. Did you mean 'port'?"]),
        (
            ["+simple_agent.responses_api_agents.simple_agent.max_steps=3"],
            ["no loaded config has a server 'simple_agent'", f"Did you mean '{AGENT}'?"],
        ),
    ],
)
def test_an_override_without_effect_exits_like_an_unknown_flag(gym, words, parts):
    expect(gym("env", "start", *REPLAYED, *words), 2, *parts)


@pytest.mark.parametrize("words", [("view", TASKS), ("export", TASKS, "--to", "sft", "-o", "o"), ("env", "status")])
def test_no_command_accepts_an_override_that_nothing_reads(gym, words):
    expect(gym(*words, "+frobnicate=1"), 2, "nothing reads 'frobnicate'")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["+skip_venv_if_present=perhaps"], ["skip_venv_if_present (command line): must be true or false"]),
        (["--model-url", "localhost:8000/v1"], ["policy_base_url", "no scheme", "write 'http://localhost:8000/v1'"]),
        (["--model-api-key", ""], ["policy_api_key (command line): it is empty", "shell variable"]),
        (["+policy_model_name="], ["policy_model_name (command line): it is empty"]),
    ],
)
def test_an_override_with_a_wrong_value(gym, words, parts):
    expect(gym("env", "start", *REPLAYED, *words), 1, *parts)


def test_the_default_of_an_unset_variable_as_a_url_is_a_warning(gym):
    """Configs name endpoints this way that a run may not need, such as that of a judge."""
    Path("env.yaml").write_text("policy_base_url: ${oc.env:NO_SUCH_URL,MISSING}\npolicy_api_key: k\n")
    said = gym("env", "validate", "--config", SERVER, "--model-type", "openai_model", "--model", "m")
    assert (said.code, said.out) == (0, "✓ Config is valid.\n"), said
    assert said.err.count("warning: policy_base_url (env.yaml:1): 'MISSING' is not a URL") == 1
    assert "environment variable 'NO_SUCH_URL'" in said.err


@pytest.mark.parametrize("command", [("env", "validate"), ("env", "start")])
def test_a_variable_that_is_set_to_no_url(gym, command, monkeypatch):
    monkeypatch.setenv("MODEL_URL", "localhost:8000/v1")
    Path("env.yaml").write_text("policy_base_url: ${oc.env:MODEL_URL,MISSING}\npolicy_api_key: k\n")
    said = gym(*command, "--config", SERVER, "--model-type", "openai_model", "--model", "m")
    expect(said, 1, "policy_base_url (env.yaml:1): 'localhost:8000/v1' is not a URL", "variable 'MODEL_URL'")


def test_all_mistakes_are_told_at_once(gym):
    expect(
        gym("eval", "run", "+frobnicate=1", "--concurrency", "0", "--num-repeats", "many"),
        2,
        "nothing reads 'frobnicate'",
        "missing required configuration: output_jsonl_fpath.",
        "num_samples_in_parallel (--concurrency) must be greater than 0",
        "num_repeats must be a whole number",
        "no environment was chosen",
        "--resources-server NAME",
        "gym list environments",
        "the config has 3 problems",
        "[3] ",
    )


def test_the_name_just_typed_is_never_suggested(gym, tmp_path):
    for name in ("strict", "lenient"):
        write_config(tmp_path, f"resources_servers/checker/configs/{name}.yaml", "")
    for command in ("check", "validate"):
        said = gym("env", command, "checker")
        expect(said, 2, "configs/strict.yaml", "configs/lenient.yaml", "`--config resources_servers/checker/configs/")
        assert "Did you mean" not in said.err
    said = gym("eval", "run", "--resources-server", "checker", "--output", "o")
    expect(said, 2, "no checker.yaml", "its folder has others: checker/lenient, checker/strict", "as in `--resources")


def test_a_name_that_is_like_no_other_says_where_names_are_listed(gym):
    expect(gym("env", "check", "zzzzzz"), 2, "there is no 'zzzzzz'", "`gym search zzzzzz`", "`gym list")


@pytest.mark.parametrize("word", ["--allow-unknown-keys", "+allow_unknown_keys=true"])
def test_whoever_means_it_may_pass_keys_that_nothing_reads(gym, word):
    said = gym("env", "validate", *REPLAYED, "+frobnicate=1", f"++{IN_AGENT}.max_step=3", word)
    assert (said.code, said.out) == (0, "✓ Config is valid.\n"), said.err


@pytest.mark.parametrize(
    "word", ["+limit=3", "+output_dirpath=x", "+judge_failed_only=true", "+wandb_entity=me", f"++{IN_AGENT}.port=20123"]
)
def test_a_setting_of_another_command_or_library_may_be_passed_to_all(gym, word):
    said = gym("env", "validate", *REPLAYED, word)
    assert (said.code, said.out) == (0, "✓ Config is valid.\n"), said.err


def test_a_mistyped_key_stops_commands_that_only_read_files(gym):
    said = gym("eval", "profile", "--rollouts", "r.jsonl", "+pass_treshold=1")
    expect(said, 2, "nothing reads 'pass_treshold'. Did you mean 'pass_threshold'?")


@pytest.mark.parametrize("more", [[], ["--input", TASKS]], ids=["the config's own tasks", "an input"])
def test_an_agent_that_is_not_there(gym, more):
    said = gym("eval", "run", *REPLAYED, "-o", "r.jsonl", "--agent", "example_multi_step_simple_agnt", *more)
    expect(said, 1, "--agent example_multi_step_simple_agnt: there is no such agent", f"Did you mean '{AGENT}'?")


def test_an_input_without_an_agent_where_there_are_two(gym):
    two = f"+second={{_copy: {AGENT}}}"
    said = gym("eval", "run", *REPLAYED, "-o", "r.jsonl", "--input", TASKS, two)
    expect(said, 1, f"no agent: choose one with `--agent`, which is `agent_name` (one of {AGENT}, second)")


def test_an_output_that_is_a_folder(gym):
    expect(gym("eval", "run", *REPLAYED, "-o", "."), 1, "the output '.' is a folder", "hint: name one in it")


def test_no_servers_where_some_should_run(gym, unused_tcp_port):
    here = f"++head_server.port={unused_tcp_port}"
    said = gym("eval", "run", "--no-serve", "-o", "r.jsonl", "--input", str(PARENT_DIR / TASKS), here)
    expect(said, 1, f"no head server answers at 127.0.0.1:{unused_tcp_port}", "hint: start the servers first")


def test_a_rollouts_file_that_is_not_there(gym):
    said = gym("eval", "profile", "--rollouts", "nowhere.jsonl")
    expect(said, 1, "there is no rollouts file 'nowhere.jsonl'", "hint: ")


def test_a_mistake_that_only_the_server_itself_sees_is_told_without_a_traceback(gym, unused_tcp_port):
    selectors = ("--resources-server", "example_multi_step", "--model-type", "replay_model")
    said = gym("env", "start", *selectors, f"++head_server.port={unused_tcp_port}")
    expect(said, 1, "the config of server 'policy_model' is not valid:", "exactly one of")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--limit", "-1"], "limit must be greater than 0, not -1"),
        (
            ["--num-repeats", "0"],
            "num_repeats must be a whole number of at least 1, or a mapping of agents to such numbers, not 0",
        ),
        (["--limit", ""], "limit must be a whole number, but it is empty (is a shell variable unset?)"),
        (["+split=exampl"], "split must be one of 'train', 'validation', 'example' or 'benchmark', not 'exampl'"),
    ],
)
def test_a_wrong_setting_is_told_in_plain_words(gym, words, part):
    expect(gym("eval", "run", "--no-serve", "-o", "r.jsonl", *words), 2, part)
