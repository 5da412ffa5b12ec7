# SPDX-License-Identifier: Apache-2.0
"""A harness in a process of its own uses a program as if it were in the same one, as far as values are plain."""

from collections import Counter, OrderedDict, deque

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._isolation.inside.remote_objects import PlainValues
from nemo_gym.code_execution import Harness

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False) | st.dates() | st.datetimes()
    | st.times() | st.timedeltas() | st.builds(range, st.integers(-9, 9), st.integers(-9, 9))
    | st.integers(70, 5_000).map(lambda bits: 1 << bits)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.lists(inner).map(deque) | st.dictionaries(SCALARS, inner)
        | st.dictionaries(SCALARS, inner).map(OrderedDict) | st.sets(SCALARS) | st.frozensets(SCALARS)
    ),
    max_leaves=20,
)  # fmt: skip


def refuse(value):
    raise AssertionError(value)


@given(VALUES)
@settings(max_examples=40)
async def test_plain_values_come_back_as_they_were(value):
    values = PlainValues({}, refuse, refuse)
    back = values.decode(values.encode(value))
    assert (back, type(back)) == (value, type(value))


async def test_a_subclass_passes_as_what_it_is_derived_from():
    class Always(list):
        def __eq__(self, other):
            return True

    values = PlainValues({}, refuse, refuse)
    back = values.decode(values.encode([Always([1]), Counter("aa"), iter((1, 2))]))
    assert (type(back[0]), back[1], list(back[2])) == (list, Counter("aa"), [1, 2])


async def run_tests(pool, program, harness, *, is_apart, entry_points=("f",), **words):
    tests = Harness(f"{harness}\n", entry_points, is_apart=is_apart, **words)
    return await pool.call(program, "test", harness=tests)


PAIR = "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(pairs): return [p.a for p in pairs]"
NODE = "class Node:\n    def __init__(self, value, *below): self.value, self.below = value, below"


@pytest.mark.parametrize("is_apart", [True, False], ids=["apart", "shared"])
@pytest.mark.parametrize(
    ("program", "harness", "words"),
    [
        ("def f(x, *, y): return x, y", "def test(): return f(1, y={2}) == (1, {2})", {}),
        ("def f(): yield from 'ab'", "def test(): return list(f()) == ['a', 'b']", {}),
        (
            "from collections import Counter\ndef f(x): return Counter(x)",
            "def test(): return f('aab') == {'a': 2, 'b': 1}",
            {},
        ),
        (
            PAIR,
            "def test(): return f([Pair(1, 2), Pair(3, 4)]) == [1, 3] and Pair(5, 6).b == 6",
            {"entry_points": ["f", "Pair"]},
        ),
        (
            "def f(node): return Node(node.value + sum(f(one).value for one in node.below))",
            f"{NODE}\ndef test(): return f(Node(1, Node(2), Node(3, Node(4)))).value == 10",
            {"given": NODE},
        ),
        ("def f(x): return helper(x)", "def test(): return f(1) == 2", {"given": "def helper(x): return x + 1"}),
        (
            "def f(x): raise ValueError('no')",
            "def test():\n    try: f(1)\n    except ValueError as e: return e.args == ('no',)",
            {},
        ),
        ("def f(x): return x\nabs = None", "def test(): return abs(f(-1)) == 1", {}),
        ("def f(): return 1", "def test(): return f() == 1", {"given": "from __future__ import annotations"}),
        ("LIMIT = 3\ndef f(): return LIMIT", "def test(): return f() == LIMIT", {"entry_points": ["f", "LIMIT"]}),
    ],
)
async def test_a_harness_uses_what_a_program_defines(program, harness, words, is_apart, pool):
    result = await run_tests(pool, program, harness, is_apart=is_apart, **words)
    assert (result.value, result.error) == (True, "")


@pytest.mark.parametrize("is_apart", [True, False], ids=["apart", "shared"])
@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("g = 1", "error", "NameError: the code defines no 'f'"),
        ("def f(:", "error", "SyntaxError: invalid syntax"),
        ("1 / 0", "error", "ZeroDivisionError: division by zero"),
        ("def f(): return [][0]", "error", "IndexError: list index out of range"),
        ("def f(): return bytearray(1 << 40)", "memory", "used too much memory"),
        ("bytearray(1 << 40)", "memory", "used too much memory"),
        ("def f():\n    while True: pass", "timeout", "took too long"),
    ],
)
async def test_what_a_program_does_wrong_is_said_as_ever(program, status, error, is_apart, pool):
    tests = Harness("def test(): return f()", ["f"], is_apart=is_apart)
    result = await pool.call(program, "test", harness=tests, timeout_s=0.5 if status == "timeout" else 120)
    assert (result.status, result.error) == (status, error)


async def test_an_object_that_cannot_leave_its_process_equals_nothing(pool):
    program = "class Yes:\n    def __eq__(self, other): return True\ndef f(): return Yes()"
    harness = "def test(): return [f() == 1, f() == f(), f() is None]"
    assert (await run_tests(pool, program, harness, is_apart=True)).value == [False, False, False]
    assert (await run_tests(pool, program, harness, is_apart=False)).value == [True, True, False]


async def test_what_a_test_cannot_hand_over_is_named(pool):
    result = await run_tests(pool, "def f(g): return g(1)", "def test(): return f(lambda x: x)", is_apart=True)
    assert result.error == "TypeError: an object of class 'function' cannot be handed to the program's process"


async def test_a_program_does_not_reach_into_the_process_of_its_tests(pool):
    program = """
import glob, os
def f():
    found = []
    for path in [*glob.glob('/proc/[0-9]*/mem'), *glob.glob('/proc/[0-9]*/fd/*'), *glob.glob('/proc/[0-9]*/environ')]:
        if f'/{os.getpid()}/' not in path:
            try: os.close(os.open(path, os.O_RDWR)); found.append(path)
            except OSError: pass
    return found, [fd for fd in range(3, 50) if os.path.exists(f'/proc/self/fd/{fd}')]
"""
    result = await run_tests(pool, program, "def test(): return f()", is_apart=True)
    assert result.value == [[], [3]], result
