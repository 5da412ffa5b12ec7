# SPDX-License-Identifier: Apache-2.0
"""What the adapter adds to GEM, without GEM: what a model is shown, and what a reply without an answer is worth."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym.testing import running
from resources_servers.gem_gym import catalog, generate_data
from resources_servers.gem_gym.app import GemGymResourcesServer
from resources_servers.gem_gym.environment import GemEnvironment


class Board:
    """A game as GEM has them: the board is not in the observation."""

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        return "Reach the corner.\n", {"suffix": "You are at 0.", "level": seed}

    def step(self, text: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return f"You said {text}.", 0.25, False, False, {"suffix": "You are at 1."}


def test_the_model_is_shown_the_board_in_every_turn():
    game = GemEnvironment(Board())
    assert game.reset(seed=3) == ("Reach the corner.\nYou are at 0.", {"level": 3})
    assert game.step("up") == ("You said up.\nYou are at 1.", 0.25, False, False, {})


def test_the_model_is_shown_the_pictures_of_a_question():
    class Pictures(Board):
        def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
            return {"problem": "Which colour?", "images": [Image.new("RGB", (2, 1), "red")]}, {}

    ((message,), _) = GemEnvironment(Pictures()).reset(seed=0)
    picture, question = message["content"]
    assert (message["role"], question) == ("user", {"type": "input_text", "text": "Which colour?"})
    kind, encoded = picture["image_url"].split(",")
    assert kind == "data:image/png;base64"
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).getpixel((1, 0)) == (255, 0, 0)


class QaEnv(Board):
    """Fails as the library's does on a reply without an answer."""

    def step(self, text: str) -> Any:
        if "<answer>" in text:
            is_correct = "Paris" in text
        return "", float(is_correct), True, True, {"correct": is_correct}


def test_a_reply_without_an_answer_to_a_question_is_worth_nothing_and_no_failure():
    questions = GemEnvironment(QaEnv())
    assert questions.step("<answer>Paris</answer>") == ("", 1.0, True, True, {"correct": True})
    assert questions.step("Paris") == (None, 0.0, True, True, {"correct": False})

    class OtherEnv(QaEnv):
        """Of any other environment, the same error is one of its own."""

    with pytest.raises(UnboundLocalError):
        GemEnvironment(OtherEnv()).step("Paris")


@pytest.mark.parametrize(
    ("environment_id", "prompt"),
    [
        ("game:Sudoku-v0-easy", catalog.GAME),
        ("rg:chain_sum", catalog.TASK),
        ("math:GSM8K", catalog.TASK),
        ("logic:RuleTaker-d2", catalog.TASK),
        ("eval:AIME24", catalog.TASK),
        ("eval:QaOpen", catalog.QUESTION),
        ("qa:HotpotQA", catalog.QUESTION),
        ("code:Taco8k", catalog.CODE),
        ("eval:CodeContest", catalog.CODE),
    ],
)
def test_a_row_tells_the_form_of_the_answer(environment_id, prompt):
    row = catalog.make_row(environment_id, 7, {"max_turns": 3})
    assert row["responses_create_params"]["input"] == [{"role": "system", "content": prompt}]
    assert (row["environment_id"], row["environment_args"], row["seed"]) == (environment_id, {"max_turns": 3}, 7)


def test_the_readme_shows_a_row_of_the_data():
    block = (Path(generate_data.HERE) / "README.md").read_text().split("```json\n")[1].split("\n```")[0]
    assert json.loads(block) == generate_data.rows()[0]


def test_the_server_itself_does_not_load_the_library():
    loaded = "import sys, resources_servers.gem_gym.app; print({'gem', 'reasoning_gym', 'nltk'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


async def test_without_the_library_an_episode_fails_by_name():
    async with running(world=GemGymResourcesServer) as client:
        refused = await client.post("world", "/reset", json=generate_data.rows()[0])
        assert refused.status == 500
        assert "gem" in await refused.text()
