# SPDX-License-Identifier: Apache-2.0
"""Run by test_real_trainers.py with OpenRLHF's Python: its agent files and its reward calls, with ours behind them."""

import asyncio
import importlib.metadata
import importlib.util
import os
import socket
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from openrlhf.utils.agent import AgentExecutorBase, SingleTurnAgentExecutor

from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations import openrlhf
from nemo_gym.integrations.live import LiveGym, list_messages, write_row
from tests.integrations.real.hf_tokenizer import Script, make_tokenizer
from tests.support.live_gym import CONFIG, check_sequence, read_task, solve

QUIZ_CONFIG = "resources_servers/string_match/configs/string_match.yaml"
CONFIGS = [CONFIG, QUIZ_CONFIG]
AGENT_FILE = f"""
from nemo_gym.integrations.openrlhf import build_agent_executor
AgentExecutor = build_agent_executor({CONFIGS!r}, attempts=1)
"""


class Engine:
    """The engine's interface, as OpenRLHF's actor gives it to an executor."""

    def __init__(self, script):
        self.script = script

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        ids, log_probs = self.script.write(prompt_token_ids, sampling_params.max_tokens)
        chosen = [{each: SimpleNamespace(logprob=value)} for each, value in zip(ids, log_probs, strict=True)]
        output = SimpleNamespace(token_ids=ids, logprobs=chosen, finish_reason="stop", text="")
        return SimpleNamespace(outputs=[output])


def load_executor(path):
    """What OpenRLHF does with an agent file."""
    spec = importlib.util.spec_from_file_location("agent_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hasattr(module, "AgentExecutor")
    assert issubclass(module.AgentExecutor, AgentExecutorBase)
    return module.AgentExecutor()


async def play_with_agent(executor):
    row, tokenizer = read_task(), make_tokenizer()
    script = Script(tokenizer, solve(row))
    sampling = SimpleNamespace(max_tokens=None, logprobs=1)
    asked = {"prompt": "p", "label": write_row(row), "sampling_params": sampling, "max_length": 3000}
    response = await executor.execute(**asked, hf_tokenizer=tokenizer, llm_engine=Engine(script), images=None)
    tokens, start = response["observation_tokens"], response["action_ranges"][0][0]
    mask = [int(any(first <= place < end for first, end in response["action_ranges"])) for place in range(len(tokens))]
    check_sequence(script, tokens[:start], tokens[start:], mask[start:], response["rollout_log_probs"][start:])
    assert response["reward"] == response["scores"] == 1.0
    broken = Script(tokenizer, lambda prompt, number: 1 / 0)
    with pytest.raises(RolloutFailure, match="division by zero"):
        await executor.execute(**asked, hf_tokenizer=tokenizer, llm_engine=Engine(broken), images=None)
    return len(script.calls)


async def score_over_http(gym):
    """OpenRLHF's own single-turn executor asks our endpoint."""
    head = gym.client.global_config_dict["head_server"]
    app = openrlhf.build_reward_app(f"{head['host']}:{head['port']}")
    sock = socket.create_server(("127.0.0.1", 0))  # who connects before it serves, waits
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving, port = asyncio.create_task(server.serve([sock])), sock.getsockname()[1]
    executor, tokenizer = SingleTurnAgentExecutor(f"http://127.0.0.1:{port}/get_reward"), make_tokenizer()
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]},
        "expected_answer": "yes",
        "agent_ref": {"type": "responses_api_agents", "name": "string_match_simple_agent"},
    }
    prompt = tokenizer.apply_chat_template(list_messages(row), tokenize=False, add_generation_prompt=True)
    for answer, label, reward in (
        (r"\boxed{yes}", write_row(row), [1.0]),
        (r"\boxed{no}", write_row(row), [0.0]),
        (r"\boxed{yes}", "no row", None),
    ):
        script = Script(tokenizer, lambda prompt, number, answer=answer: answer)
        sampling = SimpleNamespace(max_tokens=50, logprobs=None)
        response = await executor.execute(prompt, label, sampling, 1000, tokenizer, Engine(script))
        assert response["reward"] == reward, response["reward"]
    server.should_exit = True
    await serving


async def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.py"
        path.write_text(AGENT_FILE)
        turns = await play_with_agent(load_executor(path))
    os.environ["NEMO_GYM_LIVE_CONFIG_PATHS"] = ",".join(CONFIGS)
    assert await play_with_agent(load_executor(openrlhf.__file__)) == turns
    async with await LiveGym.of_process(CONFIGS) as gym:
        await score_over_http(gym)
    version = importlib.metadata.version("openrlhf")
    sys.stdout.write(f"\nopenrlhf {version}: {turns} turns and 3 rewards, exact\n")


asyncio.run(main())
