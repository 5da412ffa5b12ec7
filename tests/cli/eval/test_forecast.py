# SPDX-License-Identifier: Apache-2.0
"""What is said before a long run with the model on this machine."""

from pathlib import Path

from omegaconf import OmegaConf

from nemo_gym._rollouts.collect import Run
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym.cli.eval.forecast import describe, tell_duration
from nemo_gym.errors import GymError

SLOW = {
    "model": "SmolLM2-135M-Instruct",
    "parameters": 134_515_008,
    "context_length": 2048,
    "read_tokens_per_s": 200.0,
    "written_tokens_per_s": 20.0,
    "work": [{"prompt_tokens": 1000, "most_output_tokens": 1000}, {"prompt_tokens": 1100, "most_output_tokens": 900}],
}
TOOLS = [{"type": "function", "name": "look_up"}]


def test_a_long_run_is_told_with_size_speed_and_the_least_and_the_most_it_takes():
    said = describe(SLOW, 100, has_tools=True)
    assert said is not None
    model, duration, hint = said.splitlines()
    assert model == (
        "SmolLM2-135M-Instruct, a small model (135M parameters) on this machine's CPU, "
        "reads 200 and writes 20 tokens/s now."
    )
    assert duration == (
        "100 rollouts with prompts of about 1,050 tokens take about 9 min for the prompts alone, "
        "and up to about 88 min if its replies reach their limit of 950 tokens."
    )
    assert hint.startswith("hint: ")


def test_a_short_run_is_not_worth_a_word():
    fast = {**SLOW, "read_tokens_per_s": 1e6, "written_tokens_per_s": 1e6}
    assert describe(fast, 100, has_tools=True) is None


def test_short_questions_are_not_forecast_by_the_longest_reply_that_they_allow():
    short = {**SLOW, "work": [{"prompt_tokens": 50, "most_output_tokens": 2000}]}
    assert describe(short, 28, has_tools=False) is None
    assert describe(short, 10_000, has_tools=False) is not None


def test_a_large_model_is_not_called_small():
    large = {**SLOW, "parameters": 8e9}
    assert "small" not in describe(large, 100, has_tools=True)


class Client:
    """Answers as a local model server does, or fails."""

    def __init__(self, kind: str, failure: GymError | None = None) -> None:
        agent = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
        self.global_config_dict = OmegaConf.create(
            {
                "policy_model": {"responses_api_models": {kind: {}}},
                "agent": {"responses_api_agents": {"simple_agent": agent}},
                "limit": 3,
            }
        )
        self.asked = list[int]()
        self._failure = failure

    async def post(self, server_name: str, url_path: str, json: dict) -> "Client":
        assert (server_name, url_path) == ("policy_model", "/forecast")
        self.asked.append(len(json["samples"]))
        if self._failure is not None:
            raise self._failure
        return self

    ok = True

    async def read(self) -> bytes:
        import orjson

        return orjson.dumps(SLOW)


def rows(count: int, **params: object) -> list[dict]:
    return [
        {"number": number, "agent_ref": {"name": "agent"}, "responses_create_params": {"input": "hi", **params}}
        for number in range(count)
    ]


async def play(client: Client, planned: list[dict]) -> list[dict]:
    run = Run(RunPaths(Path("r.jsonl")), None, iter(planned), len(planned), is_resumed=False)
    await tell_duration(client, run)
    return list(run.rows)


async def test_the_local_model_is_asked_once_with_a_few_rows_and_every_row_is_played(capsys):
    client, planned = Client("local_model"), rows(100, tools=TOOLS)
    assert await play(client, planned) == planned
    assert client.asked == [8]
    assert "a small model (135M parameters)" in capsys.readouterr().err


async def test_no_other_model_is_asked_and_no_local_one_for_a_few_short_questions(capsys):
    for client, planned in ((Client("openai_model"), rows(100, tools=TOOLS)), (Client("local_model"), rows(112))):
        assert await play(client, planned) == planned
        assert client.asked == []
    assert capsys.readouterr().err == ""


async def test_a_forecast_that_fails_does_not_keep_the_run_from_beginning(capsys):
    planned = rows(3, tools=TOOLS)
    assert await play(Client("local_model", GymError("no weights")), planned) == planned
    assert capsys.readouterr().err == ""
