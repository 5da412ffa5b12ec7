# SPDX-License-Identifier: Apache-2.0
"""A server and a provider that others wrote work together, however the provider is made known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import nemo_gym.global_config
from nemo_gym.sandbox import SandboxResources, get_provider_class, list_providers
from nemo_gym.sandbox.providers import registry
from nemo_gym.testing import build_server, reply
from tests.contract.servers import paper_provider
from tests.contract.servers.paper_provider import PaperProvider
from tests.contract.servers.shell_grader import ShellGraderServer, ShellVerifyRequest

CONFIG = {"sandbox": {"paper": {"sheets": 3, "region": "north"}, "default_metadata": {"team": "blue"}}}


def by_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper_provider.register()


def by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that names the provider, as pip would leave it."""
    info = tmp_path / "paper_sandboxes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-sandboxes\nVersion: 1.0\n")
    where = f"{PaperProvider.__module__}:{PaperProvider.__qualname__}"
    (info / "entry_points.txt").write_text(f"[nemo_gym.sandbox_providers]\npaper = {where}\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture(params=[by_registration, by_entry_point])
def paper(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PaperProvider]:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(PaperProvider, "made", [])
    monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create(CONFIG))
    make_known: Callable[..., None] = request.param
    make_known(tmp_path, monkeypatch)
    return PaperProvider.made


def grader(**settings: Any) -> ShellGraderServer:
    given = {"sandbox_provider": "sandbox", **settings}
    return build_server(ShellGraderServer, **given)


def request_for(script: str, expected: str = "42") -> ShellVerifyRequest:
    return ShellVerifyRequest(responses_create_params={"input": "go"}, response=reply(script), expected=expected)


async def test_the_server_runs_its_script_with_the_provider_that_the_config_names(paper):
    rewrites = [{"from": "docker.io/", "to": "mirror.example/"}]
    server = grader(image_rewrites=rewrites, resources={"cpu": "2", "memory_mib": 512})
    right, wrong = await server.verify(request_for("echo 42")), await server.verify(request_for("echo 41"))
    assert (right.reward, right.printed, wrong.reward) == (1.0, "42\n", 0.0)
    (provider, _) = paper
    (spec,) = provider.specs
    assert (provider.sheets, provider.region) == (3, "north")
    assert spec.image == "mirror.example/library/bash:5"
    assert spec.resources == SandboxResources(cpu=2.0, memory_mib=512)
    assert spec.metadata == {"team": "blue", "task": 7}
    assert len(provider.closed) == 2
    assert provider.closed[-1] == "provider"


async def test_a_script_that_hangs_is_a_wrong_answer_and_a_broken_sandbox_is_none(paper):
    slow = await grader().verify(request_for("hang"))
    assert (slow.reward, slow.printed, slow.failure) == (0.0, None, "timeout")
    with pytest.raises(RuntimeError, match="the sandbox failed: on fire"):
        await grader().verify(request_for("burn"))


async def test_a_sandbox_that_cannot_be_made_is_a_runtime_error_and_closes_the_provider(paper):
    with pytest.raises(RuntimeError, match="out of paper"):
        await grader(sandbox_provider={"paper": {"sheets": 0}}).verify(request_for("echo 42"))
    assert paper[0].closed == ["provider"]


def test_the_provider_is_listed_and_found(paper):
    assert "paper" in list_providers()
    assert get_provider_class("paper") is PaperProvider


async def test_the_same_server_runs_on_this_machine(monkeypatch):
    config = OmegaConf.load(Path(nemo_gym.__file__).parent / "sandbox/providers/local/configs/local.yaml")
    monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", config)
    verified = await grader().verify(request_for("echo $((6 * 7))"))
    assert (verified.reward, verified.printed) == (1.0, "42\n")
