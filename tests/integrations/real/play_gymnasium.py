# SPDX-License-Identifier: Apache-2.0
"""Resources servers as environments of gymnasium: its own checker accepts them, and rewards are those of the servers.

Without an argument the servers are started in this process; with `host:port`, they run under that head server.
"""

import json
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from nemo_gym import PARENT_DIR
from nemo_gym.integrations.episodes import EpisodeError
from nemo_gym.integrations.gymnasium_env import make_env
from nemo_gym.integrations.playing import read_tasks

SERVERS = {
    "blackjack": "blackjack",
    "example_multi_step_resources_server": "example_multi_step",
    "string_match": "string_match",
}
FOLDERS = PARENT_DIR / "resources_servers"
CONFIGS = [str(FOLDERS / folder / "configs" / f"{folder}.yaml") for folder in SERVERS.values()]
WHERE = {"head_server": sys.argv[1]} if len(sys.argv) > 1 else {"config_paths": CONFIGS}


def rows_of(server):
    return read_tasks(str(FOLDERS / SERVERS[server] / "data" / "example.jsonl"))


def check_all():
    for server in SERVERS:
        settings = {"server": server, "rows": rows_of(server), **WHERE}
        gymnasium.register(f"nemo_gym/{server}-v0", entry_point=make_env, kwargs=settings)
        env = gymnasium.make(f"nemo_gym/{server}-v0")
        check_env(env.unwrapped)
        env.close()
        env.close()


def play_blackjack():
    with make_env("blackjack", rows_of("blackjack"), **WHERE) as env:
        for seed in range(5):
            observation, info = env.reset(seed=seed)
            assert "<action>stand</action>" in observation
            assert [message["role"] for message in info["messages"]] == ["system", "user"]
            total, is_over = 0.0, False
            while not is_over:
                observation, reward, terminated, truncated, info = env.step("<action>hit</action>")
                total, is_over = total + reward, terminated or truncated
            assert (total, info["player_value"] > 21) == (-1.0, True)
        with pytest.raises(EpisodeError, match="reset"):
            env.step("<action>hit</action>")


def play_tools():
    rows = rows_of("example_multi_step_resources_server")
    with make_env("example_multi_step_resources_server", rows, **WHERE) as env:
        for number, row in enumerate(rows):
            _, info = env.reset()
            assert {tool["name"] for tool in info["tools"]} == {"get_synonym_value", "extract_synonym_values"}
            values = []
            for synonym in row["expected_synonyms"]:
                call = {"tool": "get_synonym_value", "arguments": {"synonym": synonym}}
                observation, reward, terminated, truncated, _ = env.step(json.dumps(call))
                assert (reward, terminated, truncated) == (0.0, False, False)
                values.append(json.loads(observation)["synonym_value"])
            given = values if number % 2 == 0 else values[:-1]
            env.step(json.dumps({"tool": "extract_synonym_values", "arguments": {"synonym_values": given}}))
            _, reward, terminated, _, info = env.step("done")
            assert (reward, terminated, info["accuracy"]) == (
                (1.0, True, True) if given == values else (0.0, True, False)
            )


def play_answers():
    question = {
        "responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]},
        "expected_answer": "yes",
        "extraction_mode": "boxed",
    }
    with make_env("string_match", **WHERE) as env:
        for answer, expected in ((r"\boxed{yes}", 1.0), (r"\boxed{no}", 0.0), ('{"tool": "add"}', 0.0)):
            observation, _ = env.reset(options={"row": question})
            assert observation == "Say yes."
            assert env.step(answer)[1:4] == (expected, True, False)


def play_side_by_side(kind, **settings):
    makers = [lambda: make_env("blackjack", rows_of("blackjack"), **WHERE)] * 3
    envs = kind(makers, **settings)
    observations, _ = envs.reset(seed=[0, 1, 2])
    assert len(set(observations)) == 3
    _, rewards, terminated, _, _ = envs.step(("<action>stand</action>",) * 3)
    assert all(terminated)
    assert set(rewards) <= {-1.0, 0.0, 1.0}
    envs.close()


check_all()
play_blackjack()
play_tools()
play_answers()
play_side_by_side(gymnasium.vector.SyncVectorEnv)
play_side_by_side(gymnasium.vector.AsyncVectorEnv, shared_memory=False)
print("gymnasium", gymnasium.__version__, "checked", ", ".join(SERVERS), "with rewards that are exact")
