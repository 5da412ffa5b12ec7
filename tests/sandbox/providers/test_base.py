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


def test_numbers_of_resources_may_come_as_text():
    given = {"cpu": "1.5", "memory_mib": "512", "disk_gib": 10, "gpu": "2", "gpu_type": "h100"}
    assert base.SandboxResources.from_mapping(given) == base.SandboxResources(1.5, 512, 10, 2, "h100")
    assert base.SandboxResources.from_mapping(None) == base.SandboxResources()


@pytest.mark.parametrize(
    ("given", "message"), [({"cpus": 1}, "Unknown sandbox resource keys: 'cpus'"), ({"gpu": "many"}, "not numbers")]
)
def test_resources_that_make_no_sense_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        base.SandboxSpec(resources=given)


def test_ports_become_a_tuple():
    assert base.SandboxSpec(ports=[80, 8080]).ports == (80, 8080)


def test_a_port_may_come_as_text():
    assert base.SandboxSpec(ports=[8000, "9222"]).ports == (8000, 9222)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ([True], "Invalid sandbox TCP port True"),
        ([1.5], "Invalid sandbox TCP port 1.5"),
        (["a"], "Invalid sandbox TCP port 'a'"),
        ([0], "between 1 and 65535"),
        ([65536], "between 1 and 65535"),
        ([80, "80"], "Duplicate sandbox TCP port 80"),
        ("80", "must be a list of numbers"),
        (80, "must be a list of numbers"),
    ],
)
def test_ports_that_no_sandbox_can_have_are_refused(ports, message):
    with pytest.raises(ValueError, match=message):
        base.SandboxSpec(ports=ports)


def test_a_spec_takes_any_value_and_a_provider_makes_text_of_it():
    spec = base.SandboxSpec(env={"A": 1, "B": True}, metadata={"n": 2})
    assert base.stringify_env(spec.env) == {"A": "1", "B": "True"}
    assert base.stringify_env(None) == {}


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": None}, {"A": "x\0y"}, {3: "x"}])
def test_an_environment_that_no_process_can_have_is_refused(env):
    with pytest.raises(ValueError, match="environment variables"):
        base.stringify_env(env)


def test_the_message_about_a_bad_variable_does_not_show_its_value():
    with pytest.raises(base.SandboxConfigError) as caught:
        base.stringify_env({"MY_TOKEN": "se\0cret"})
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "/x", "http://", None])
def test_an_endpoint_is_an_absolute_url(url):
    assert base.SandboxEndpoint("http://127.0.0.1:8080/x").headers == {}
    with pytest.raises(ValueError, match="must be an absolute URL"):
        base.SandboxEndpoint(url)


@pytest.mark.parametrize(
    "error",
    [
        base.SandboxError,
        base.SandboxConfigError,
        base.SandboxConfigTypeError,
        base.SandboxCreateError,
        base.SandboxCreateVerificationError,
        base.SandboxPtyError,
        base.SandboxUnsupportedError,
        base.UnknownProviderError,
        base.SandboxNotRunningError,
        base.SandboxExpiredError,
        base.SandboxTransferError,
    ],
)
def test_errors_are_gym_errors_and_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error("what happened")))
    assert isinstance(copy, GymError)
    assert type(copy) is error
    assert str(copy) == "what happened"


def test_a_provider_may_change_what_it_knows_of_a_sandbox():
    handle = base.SandboxHandle("x")
    handle.raw = {"address": 1}
    assert handle == base.SandboxHandle("x", "", {"address": 1})


def test_results_and_handles_are_built_by_keyword():
    result = base.SandboxExecResult(stdout="a", stderr="b", return_code=3, error_type="oom")
    assert (result.stdout, result.stderr, result.return_code, result.error_type) == ("a", "b", 3, "oom")
    assert base.SandboxHandle(sandbox_id="x", provider_name="p", raw=1).raw == 1
    assert base.SandboxStatus("running") is base.SandboxStatus.RUNNING
