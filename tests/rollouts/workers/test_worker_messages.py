# SPDX-License-Identifier: Apache-2.0
"""What a coordinator and its workers say to each other arrives as it was said."""

import asyncio

import orjson
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.workers.worker_messages import FrameReader, Outbox, add_outcome, count_body_bytes, read_outcome
from nemo_gym._transport.failures import Failure

ROW = {"agent_ref": {"name": "a"}, "_ng_task_index": 3, "_ng_rollout_index": 1}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.dictionaries(st.text(), JSON, max_size=4)
FAILURES = st.builds(
    Failure,
    st.sampled_from(["agent", "verifier", "timeout", "model_endpoint"]),
    st.text(max_size=20),
    st.booleans(),
    st.text(max_size=40),
    st.sampled_from(["", "429"]),
    st.text(max_size=40),
)
SECONDS = st.floats(0, 1e6)
OUTCOMES = st.builds(Scored, st.just(ROW), RESULTS, st.integers(1, 5), SECONDS) | st.builds(
    Failed, st.just(ROW), FAILURES, st.integers(1, 5), SECONDS, st.none() | RESULTS, st.booleans(), st.booleans()
)


def send_all(add):
    """The bytes that `add` makes of what it puts into an outbox."""
    sent = list[bytes]()

    async def run():
        add(Outbox(sent.append))
        await asyncio.sleep(0)

    asyncio.run(run())
    return b"".join(sent), len(sent)


def receive_all(data, sizes):
    """The messages and their raw bytes, in however many pieces `data` comes."""
    reader, received = FrameReader(), []
    for size in sizes:
        piece, data = data[:size], data[size:]
        received += take_apart(reader, piece)
    return received + take_apart(reader, data)


def take_apart(reader, piece):
    found = []
    for messages, body in reader.feed(piece):
        at = 0
        for message in messages:
            end = at + count_body_bytes(message)
            found.append((message, bytes(body[at:end])))
            at = end
    return found


@settings(deadline=None, max_examples=60)
@given(outcomes=st.lists(OUTCOMES, max_size=4), sizes=st.lists(st.integers(0, 200), max_size=6))
def test_outcomes_arrive_as_they_were_however_the_stream_is_cut(outcomes, sizes):
    def add(outbox):
        for number, outcome in enumerate(outcomes):
            add_outcome(outbox, number, outcome, lambda result: {**result, "stripped": True})

    data, frames = send_all(add)
    assert frames == bool(outcomes), "what is due at one moment is one frame"
    received = receive_all(data, sizes)
    assert [message[1] for message, _ in received] == [*range(len(outcomes))]
    for outcome, (message, body) in zip(outcomes, received, strict=True):
        told = read_outcome(message, memoryview(body), ROW)
        assert (type(told), told.attempts, told.elapsed_s) == (type(outcome), outcome.attempts, outcome.elapsed_s)
        if isinstance(outcome, Scored):
            assert told.result == {**outcome.result, "stripped": True}
            assert orjson.loads(told.line) == outcome.result
            assert told.line.endswith(b"}\n")
        else:
            assert told.failure == outcome.failure
            assert (told.result, told.terminal, told.persist) == (outcome.result, outcome.terminal, outcome.persist)


def test_a_result_that_is_no_plain_json_is_told_all_the_same():
    result = {"reward": 1.0, "half": "\ud83d", "huge": 2**70}
    data, _ = send_all(lambda outbox: add_outcome(outbox, 7, Scored(ROW, result, 1, 0.5), dict))
    ((message, body),) = receive_all(data, [])
    told = read_outcome(message, memoryview(body), ROW)
    assert told.result["reward"] == orjson.loads(told.line)["reward"] == 1.0
