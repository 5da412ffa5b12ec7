# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from tests.support.catalog import write_benchmark, write_config

PLAYED = (
    "--model-type",
    "replay_model",
    "++policy_model.responses_api_models.replay_model.replies=[Cold.]",
    "++policy_model.responses_api_models.replay_model.on_miss=cycle",
)
WRITES = """
from pathlib import Path

def prepare(**arguments):
    output = Path(__file__).parent / "data" / "{name}_benchmark.jsonl"
    output.parent.mkdir(exist_ok=True)
    output.write_text(LINES)
    return output
"""


def writes(lines: str) -> str:
    return WRITES.replace("LINES", repr(lines))


def test_the_script_of_a_benchmark_writes_its_data(tmp_path, gym):
    folder = write_benchmark(tmp_path, "tiny")
    said = gym("eval", "prepare", "--benchmark", "tiny")
    written = folder / "data" / "tiny_benchmark.jsonl"
    assert (said.code, said.out) == (0, f"Prepared: 3 rows of 'tiny' for 'tiny_simple_agent' in {written}\n")
    assert said.err == "downloading ...\n"
    assert len(written.read_text().splitlines()) == 3


def test_what_was_prepared_as_json(tmp_path, gym):
    write_benchmark(tmp_path, "tiny")
    (row,) = json.loads(gym("eval", "prepare", "--benchmark", "tiny", "--json").out)
    assert (row["agent"], row["dataset"], row["rows"], row["cached"]) == ("tiny_simple_agent", "tiny", 3, False)


def test_what_is_there_already_can_be_kept(tmp_path, gym):
    folder = write_benchmark(tmp_path, "tiny", prepare="raise SystemError")
    (folder / "data").mkdir()
    (folder / "data" / "tiny_benchmark.jsonl").write_text('{"question": "1"}\n')
    said = gym("eval", "prepare", "--benchmark", "tiny", "+use_cached_prepared_benchmarks=true")
    assert (said.code, said.out.startswith("Already prepared: 1 rows")) == (0, True)
    assert gym("eval", "prepare", "--benchmark", "tiny").code == 1


def test_arguments_reach_the_script(tmp_path, gym):
    write_benchmark(tmp_path, "tiny", prepare="def prepare(split): raise ValueError(f'no split {split}')")
    said = gym("eval", "prepare", "--benchmark", "tiny", "++prepare_script_args.split=dev")
    assert (said.code, "ValueError: no split dev" in said.err) == (1, True)
    said = gym("eval", "prepare", "--benchmark", "tiny", "++prepare_script_args.splt=dev")
    assert (said.code, "prepare(split) cannot be called" in said.err) == (1, True)


def test_all_scripts_are_checked_before_the_first_one_runs(tmp_path, gym):
    fine = write_benchmark(tmp_path, "fine")
    write_benchmark(tmp_path, "lame", prepare="import no_such_package")
    said = gym("eval", "prepare", "--benchmark", "fine", "--benchmark", "lame")
    assert (said.code, "no_such_package" in said.err, "Traceback" in said.err) == (1, True, False)
    assert not (fine / "data").exists()


@pytest.mark.slow
def test_scripts_can_run_side_by_side(tmp_path, gym):
    write_benchmark(tmp_path, "one")
    write_config(tmp_path, "benchmarks/two/config.yaml", "{}")
    write_benchmark(tmp_path, "two")
    overlay = write_config(
        tmp_path,
        "both.yaml",
        """
        config_paths: [benchmarks/one/config.yaml]
        two_simple_agent:
          _copy: one_simple_agent
          responses_api_agents:
            simple_agent:
              datasets:
              - name: two
                type: benchmark
                jsonl_fpath: benchmarks/two/data/two_benchmark.jsonl
                prepare_script: benchmarks/two/prepare.py
                prompt_config: benchmarks/two/prompts/default.yaml
        """,
    )
    said = gym("eval", "prepare", "--config", str(overlay), "--processes", "2", "--json")
    assert sorted(row["dataset"] for row in json.loads(said.out)) == ["one", "two"]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("", "wrote no rows"),
        ('{"question": "1"}\nnonsense\n', "tiny_benchmark.jsonl:2: not valid JSON"),
        ('{"question": "1"}\n{"a": 1}\n{"b": 1}\n', "the user prompt asks for 'question'"),
    ],
)
def test_rows_that_cannot_be_played_are_named(tmp_path, gym, lines, complaint):
    write_benchmark(tmp_path, "tiny", prepare=writes(lines))
    said = gym("eval", "prepare", "--benchmark", "tiny")
    assert (said.code, said.out) == (1, "")
    assert complaint in said.err
    assert "tiny_benchmark.jsonl" in said.err


def test_rows_without_input_need_a_prompt(tmp_path, gym):
    folder = write_benchmark(tmp_path, "tiny", prepare=writes('{"question": "1"}\n' * 3))
    config = folder / "config.yaml"
    config.write_text(
        "".join(line for line in config.read_text().splitlines(keepends=True) if "prompt_config" not in line)
    )
    said = gym("eval", "prepare", "--benchmark", "tiny")
    assert (said.code, "rows 1–3: no `responses_create_params.input`" in said.err) == (1, True)


def test_the_file_must_be_the_one_that_the_config_names(tmp_path, gym):
    write_benchmark(tmp_path, "tiny", prepare=writes('{"question": "1"}\n').replace("_benchmark", "_other"))
    said = gym("eval", "prepare", "--benchmark", "tiny")
    assert (said.code, "`jsonl_fpath` and prepare() name the same file" in said.err) == (1, True)


def test_a_config_without_a_benchmark_says_how_one_is_named(gym):
    config = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
    said = gym("eval", "prepare", "--config", config)
    assert (said.code, "gym eval prepare --benchmark NAME" in said.err, config in said.err) == (1, True, True)


def test_a_benchmark_that_is_not_prepared_says_which_command_prepares_it(tmp_path, gym):
    write_benchmark(tmp_path, "tiny")
    said = gym("eval", "run", "--benchmark", "tiny", *PLAYED, "--output", "o.jsonl")
    assert (said.code, said.out) == (1, "")
    assert "hint: gym eval prepare --benchmark tiny\n" in said.err


def test_a_prepared_benchmark_is_played_with_its_prompt_and_its_repeats(tmp_path, gym, unused_tcp_port):
    write_benchmark(tmp_path, "tiny", repeats=2)
    assert gym("eval", "prepare", "--benchmark", "tiny").code == 0
    at = (f"++head_server.port={unused_tcp_port}",)
    said = gym("eval", "run", "--benchmark", "tiny", *PLAYED, *at, "--output", "o.jsonl", "--json", "--quiet")
    assert said.code == 0, said.err
    assert (said.code, json.loads(said.out)["counts"]["scored"]) == (0, 6)
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    asked = sorted(row["responses_create_params"]["input"][0]["content"] for row in rows)
    assert asked == [f"What is {n}?" for n in (0, 0, 1, 1, 2, 2)]
    assert {row["agent_ref"]["name"] for row in rows} == {"tiny_simple_agent"}
