# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pickle

import pytest

from nemo_gym.errors import GymError
from nemo_gym.sandbox.providers import base


def test_a_spec_needs_nothing_and_cannot_be_changed():
    spec = base.SandboxSpec()
    assert spec.resources == base.SandboxResources()
    assert (spec.env, spec.files, spec.metadata, spec.provider_options, tuple(spec.ports)) == ({}, {}, {}, {}, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.image = "x"  # type: ignore[misc]


def test_resources_may_come_as_a_mapping_or_not_at_all():
    assert base.SandboxSpec(resources={"cpu": 2}).resources == base.SandboxResources(cpu=2)  # type: ignore[arg-type]
    assert base.SandboxSpec(resources=None).resources == base.SandboxResources()  # type: ignore[arg-type]


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": 1}, {"A": None}, {"A": "x\0y"}, {3: "x"}])
def test_an_environment_that_no_process_can_have_is_refused_before_anything_starts(env):
    with pytest.raises(ValueError, match="environment variables"):
        base.SandboxSpec(env=env)


def test_the_message_about_a_bad_variable_does_not_show_its_value():
    with pytest.raises(base.SandboxConfigError) as caught:
        base.SandboxSpec(env={"MY_TOKEN": "se\0cret"})
    assert "cret" not in str(caught.value)


def test_an_endpoint_knows_its_host_and_port():
    endpoint = base.SandboxEndpoint(url="http://127.0.0.1:8080/x")
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", 8080)
    assert base.SandboxEndpoint(url="https://host").port is None


@pytest.mark.parametrize(
    "error",
    [
        base.SandboxError,
        base.SandboxConfigError,
        base.SandboxCreateError,
        base.UnknownProviderError,
        base.SandboxNotRunningError,
        base.SandboxTransferError,
    ],
)
def test_errors_are_gym_errors_and_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error("what happened")))
    assert isinstance(copy, GymError)
    assert type(copy) is error
    assert str(copy) == "what happened"


def test_results_and_handles_are_built_by_keyword():
    result = base.SandboxExecResult(stdout="a", stderr="b", return_code=3, error_type="oom")
    assert (result.stdout, result.stderr, result.return_code, result.error_type) == ("a", "b", 3, "oom")
    assert base.SandboxHandle(sandbox_id="x", provider_name="p", raw=1).raw == 1
    assert base.SandboxStatus("running") is base.SandboxStatus.RUNNING
