# SPDX-License-Identifier: Apache-2.0
"""What callers of skills, prompts, agents and small settings catch, match and read."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ConfigPathNotFoundError, Domain
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.prompt import PromptConfig, fill_prompt, load_prompt_config, materialize_prompts
from nemo_gym.server_utils import ServerClient
from nemo_gym.skills import SkillMetadata, hash_skill_dir, load_skill_directory, stage_skills
from nemo_gym.testing import reply


class Agent(SimpleResponsesAPIAgent):
    async def responses(self, body: Any = None) -> Any:
        return reply("hi")

    async def run(self, body: Any = None) -> Any:
        raise NotImplementedError


def agent(**config: Any) -> Agent:
    settings = BaseResponsesAPIAgentConfig(name="a", host="h", port=1, entrypoint="app.py", **config)
    return Agent(config=settings, server_client=MagicMock(spec=ServerClient))


@pytest.mark.parametrize("act", [load_skill_directory, lambda path: stage_skills(path, path.parent / "dest")])
def test_a_skills_path_that_is_no_folder_is_a_value_error(tmp_path: Path, act: Any) -> None:
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(ValueError, match=name):
            act(tmp_path / name)


def test_a_skills_ref_carries_metadata_and_a_short_hash_of_paths_and_bytes(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "pdf"
    skill.mkdir(parents=True)
    text = "---\nname: pdf\ndescription: Read PDFs.\nversion: 2\n---\n"
    (skill / "SKILL.md").write_text(text)
    ref = load_skill_directory(tmp_path / "skills")
    assert ref.skills == [SkillMetadata(name="pdf", description="Read PDFs.", version="2")]
    assert ref.hash == hash_skill_dir(tmp_path / "skills")
    assert ref.hash == hashlib.sha256(b"pdf/SKILL.md\0" + text.encode() + b"\0").hexdigest()[:12]
    staged = stage_skills(ref.path, tmp_path / "dest")  # type: ignore[func-returns-value]
    assert staged is None
    assert (tmp_path / "dest" / "pdf" / "SKILL.md").read_text() == text


def test_a_request_needs_no_url() -> None:
    request: Any = SimpleNamespace(path_params={"rollout_id": "3-1"})
    assert agent().url_path_for_request("/v1/responses", request) == "/ng-rollout/3-1/v1/responses"


async def test_skipped_verification_is_named_by_its_setting() -> None:
    with pytest.warns(RuntimeWarning, match="skip_verification=True"):
        await agent(skip_verification=True).aggregate_metrics(MagicMock(verify_responses=[]))


def test_a_field_that_a_row_lacks_is_a_key_error_on_one_line() -> None:
    with pytest.raises(KeyError, match=r"'question'.*topic, level") as raised:
        fill_prompt(PromptConfig(user="{question}"), {"topic": "x", "level": 1})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("as_path", [True, False])
def test_prompts_are_materialized_from_file_to_file(tmp_path: Path, as_path: bool) -> None:
    (tmp_path / "raw.jsonl").write_text('{"question": "why?"}\n{"question": "how?"}\n')
    (tmp_path / "prompt.yaml").write_text("user: 'Q: {question}'\n")
    prompt = str(tmp_path / "prompt.yaml") if as_path else PromptConfig(user="Q: {question}")
    assert materialize_prompts(str(tmp_path / "raw.jsonl"), prompt, str(tmp_path / "out.jsonl")) == 2
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["responses_create_params"]["input"] for row in rows] == [
        [{"role": "user", "content": "Q: why?"}],
        [{"role": "user", "content": "Q: how?"}],
    ]


@pytest.mark.parametrize("row", ['{"other": 1}', '{"question": "a", "responses_create_params": {"input": "b"}}'])
def test_a_row_that_does_not_fit_a_prompt_leaves_no_output(tmp_path: Path, row: str) -> None:
    (tmp_path / "raw.jsonl").write_text(row + "\n")
    with pytest.raises(ValueError, match="row 1"):
        materialize_prompts(tmp_path / "raw.jsonl", PromptConfig(user="{question}"), tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_places_where_a_file_was_looked_for_stand_on_lines_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigPathNotFoundError) as of_config:
        GlobalConfigDictParser().load_extra_config_paths(["no/where.yaml"])
    with pytest.raises(ConfigPathNotFoundError) as of_prompt:
        load_prompt_config("no/where.yaml")
    for raised in (of_config, of_prompt):
        assert f"\n  - {tmp_path / 'no/where.yaml'}\n" in str(raised.value)


def test_the_domains_are_documented_by_their_values() -> None:
    assert all(f"`{domain.value}`" in (Domain.__doc__ or "") for domain in Domain)
