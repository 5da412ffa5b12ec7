# SPDX-License-Identifier: Apache-2.0
import asyncio
import threading

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.control import EndpointGuard, FailureRateGuard, RunControl
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._transport.failures import Failure

SCORED = Scored({}, {}, 1, 0.0)


def failed(kind="model_endpoint", message="answered 500", *, boundary="http://m/v1/responses", cause="", **fields):
    return Failed({}, Failure(kind, boundary, True, message, cause), 1, 0.0, **fields)


def test_a_run_stops_at_the_first_request_and_cancels_at_the_second():
    control = RunControl()
    assert (control.is_stopping, control.is_cancelling) == (False, False)
    assert control.request_stop() == "stopping"
    assert (control.is_stopping, control.is_cancelling) == (True, False)
    assert control.request_stop() == "cancelling"
    assert (control.is_stopping, control.is_cancelling) == (True, True)
    assert control.abort_reason is None


def test_an_aborted_run_cancels_at_once_and_keeps_the_first_reason():
    control = RunControl()
    control.abort("too many failures")
    control.abort("something else")
    assert (control.is_stopping, control.is_cancelling) == (True, True)
    assert control.abort_reason == "too many failures"


async def test_a_request_from_another_thread_reaches_the_watcher_in_its_own_thread():
    control, seen = RunControl(), asyncio.Queue()
    with control.call_on_change(lambda: seen.put_nowait(threading.current_thread())):
        await asyncio.to_thread(control.request_stop)
        assert await seen.get() is threading.current_thread()


async def test_a_request_after_the_run_reaches_nobody():
    control, seen = RunControl(), []
    with control.call_on_change(lambda: seen.append("changed")):
        pass
    control.request_stop()
    await asyncio.sleep(0)
    assert seen == []


def test_a_request_when_the_loop_is_gone_is_only_noted():
    control = RunControl()

    async def watch():
        watching = control.call_on_change(lambda: None)
        watching.__enter__()
        return watching

    watching = asyncio.run(watch())
    assert control.request_stop() == "stopping"
    watching.__exit__(None, None, None)


def test_the_guard_speaks_up_when_more_than_the_rate_failed():
    guard = FailureRateGuard(0.5, min_samples=4)
    assert [guard.note(outcome) for outcome in [failed(), failed(), failed()]] == [None] * 3
    assert guard.note(SCORED).startswith("3 of the last 4 rollouts failed (75%); at most 50% may.\n")


def test_the_guard_lets_the_rate_itself_pass():
    guard = FailureRateGuard(0.5, min_samples=2)
    assert [guard.note(outcome) for outcome in [SCORED, failed()] * 100] == [None] * 200


def test_the_guard_puts_the_most_common_cause_on_top_whatever_its_numbers_are():
    guard = FailureRateGuard(0.1, min_samples=50)
    reasons = [guard.note(failed(message=f"answered 503: request 7f3a{n} queue {n}.5 s")) for n in range(30)]
    reasons += [guard.note(failed("agent", f"KeyError: {word!r}", boundary="a/run")) for word in "abcdefghijklmnopqrst"]
    _, cause, kinds, hint = reasons[-1].splitlines()
    assert cause == (
        "most common cause, 30 times: model_endpoint at http://m/v1/responses: answered 503: request 7f3a0 queue 0.5 s"
    )
    assert kinds == "failures by kind: model_endpoint 30, agent 20"
    assert hint.startswith("hint: ")
    assert reasons[:-1] == [None] * 49


def test_the_guard_notices_an_endpoint_that_dies_late():
    guard = FailureRateGuard(0.5, window=100)
    assert not any(guard.note(SCORED) for _ in range(100_000))
    noted = [guard.note(failed()) for _ in range(51)]
    assert noted[:-1] == [None] * 50
    assert noted[-1] is not None


def test_cancelled_rollouts_and_those_kept_nowhere_do_not_count():
    guard = FailureRateGuard(0.0, min_samples=1)
    assert guard.note(failed("cancelled")) is None
    assert guard.note(failed(persist=False)) is None
    assert guard.note(failed()) is not None


@pytest.mark.parametrize("messages", [[f"cause {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(600)]])
def test_the_guard_remembers_only_causes_of_late(messages):
    guard = FailureRateGuard(1.0, min_samples=5, window=10)
    for message in messages:
        guard.note(failed(message=message))
    assert len(guard._examples) <= 22


@given(
    outcomes=st.lists(st.booleans(), max_size=120),
    rate=st.floats(0.0, 1.0),
    least=st.integers(1, 30),
    window=st.just(40),
)
@settings(max_examples=100, deadline=None)
def test_the_guard_agrees_with_counting_again(outcomes, rate, least, window):
    guard = FailureRateGuard(rate, min_samples=least, window=window)
    for n in range(len(outcomes)):
        spoke = guard.note(SCORED if outcomes[n] else failed()) is not None
        latest = outcomes[max(0, n + 1 - window) : n + 1]
        assert spoke == (len(latest) >= least and latest.count(False) > rate * len(latest))


# --- an endpoint that no call gets past -------------------------------------------------------------------------------


def reasons(guard, *outcomes):
    return [reason for outcome in outcomes if (reason := guard.note(outcome))]


@pytest.mark.parametrize(("planned", "needed"), [(500, 3), (2, 2)])
@pytest.mark.parametrize(("status", "hint"), [("401", "correct the key"), ("403", "correct the key"), ("404", "check")])
def test_a_run_whose_model_refuses_is_given_up_with_the_endpoints_own_words(planned, needed, status, hint):
    refused = failed(message=f"POST http://m/v1/responses answered {status}: not for you", cause=status)
    guard = EndpointGuard(planned)
    assert reasons(guard, *[refused] * (needed - 1)) == []
    (reason,) = reasons(guard, refused)
    for part in (f"answered {status}: not for you", f"hint: {hint}", "--resume"):
        assert part in reason


@pytest.mark.parametrize("between", [SCORED, failed(cause="429"), failed("verifier")])
def test_a_run_in_which_some_calls_get_further_goes_on(between):
    refused = [failed(cause="403")] * 2
    assert reasons(EndpointGuard(500), *refused, between, *refused) == []


@pytest.mark.parametrize("status", ["401", "404"])
def test_a_run_that_went_well_before_is_given_up_later(status):
    refused = [failed(cause=status)]
    assert reasons(EndpointGuard(500), SCORED, *refused * 9) == []
    assert len(reasons(EndpointGuard(500), SCORED, *refused * 10)) == 1


def test_a_tool_or_an_agent_that_says_401_is_not_the_models_key():
    assert reasons(EndpointGuard(500), *[failed("tool_server", cause="401"), failed("agent", cause="401")] * 20) == []


@pytest.mark.parametrize("cause", ["refused", "unknown host", "TLS"])
def test_first_calls_that_find_nobody_end_a_run(cause):
    guard = EndpointGuard(500, check_reachable=True)
    absent = failed(message="connection refused", cause=cause)
    assert [guard.note_failure(absent.failure) for _ in range(2)] == [None, None]
    assert "connection refused" in guard.note(absent)


def test_an_endpoint_that_drops_out_later_is_left_to_the_retries():
    now = [0.0]
    absent = [failed(cause="refused")] * 50
    after_a_score = EndpointGuard(500, check_reachable=True)
    assert reasons(after_a_score, SCORED, *absent) == []
    late = EndpointGuard(500, check_reachable=True, clock=lambda: now[0])
    now[0] = 31.0
    assert reasons(late, *absent) == []
    assert reasons(EndpointGuard(500), *absent) == [], "it was asked before the run began"
