# SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from nemo_gym import failure_kinds
from nemo_gym.base_resources_server import BaseVerifyResponse


def test_a_kind_is_its_constant_in_lower_case():
    named = {name: value for name, value in vars(failure_kinds).items() if isinstance(value, str) and name.isupper()}
    assert named == {kind.upper(): kind for kind in failure_kinds.FAILURE_KINDS}
    assert len(failure_kinds.FAILURE_KINDS) == 22


@pytest.mark.parametrize(("name", "is_own"), [("swebench:no_patch", True), ("swebench", False), ("A:b", False)])
def test_a_kind_of_a_servers_own_has_its_name_in_front(name, is_own):
    assert failure_kinds.is_namespaced(name) is is_own


def test_an_unknown_kind_is_kept_with_one_warning(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert failure_kinds.validate_failure_kind("moon_phase") == "moon_phase"
    assert caplog.text.count("moon_phase") == 1


@pytest.mark.parametrize("name", [None, "judge_failed", "gdpval:office_crashed"])
def test_a_known_kind_is_kept_in_silence(name, caplog):
    with caplog.at_level(logging.WARNING):
        assert failure_kinds.validate_failure_kind(name) == name
    assert not caplog.records


def test_a_verify_response_says_whether_its_reward_is_a_measurement():
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []}
    fields = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    body = {"responses_create_params": {"input": "hi"}, "response": {**response, **fields}, "reward": 1.0}
    scored = BaseVerifyResponse.model_validate(body).model_dump()
    assert (scored["mask_sample"], scored["failure_kind"], scored["failure_reason"]) == (False, None, None)
    given = {
        "mask_sample": True,
        "failure_kind": "provider_oom_killed",
        "failure_reason": "the sandbox ran out of memory",
    }
    masked = BaseVerifyResponse.model_validate({**body, **given}).model_dump()
    assert {name: masked[name] for name in given} == given
