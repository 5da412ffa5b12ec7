# SPDX-License-Identifier: Apache-2.0
"""A program passes its tests by doing what they ask for, and in no other way."""

import asyncio
from itertools import product

import pytest
import pytest_asyncio

from benchmarks._assertions import FUNCTION, unit_tests
from nemo_gym.testing import asked, reply, running
from resources_servers.code_gen.app import CodeGenResourcesServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECK = """
def check(candidate):
    assert candidate([1.0]) == [0.5]
    for n in range(3):
        assert abs(candidate([n])[0] - n / 2) < 1e-6
"""
HUMAN_EVAL = unit_tests("from typing import List", CHECK, ["check(halves)"], ["halves"])
MBPP = unit_tests(
    "import math", "", ["assert halves([1.0]) == [0.5]", "assert math.isclose(halves([3])[0], 1.5)"], ["halves"]
)
UNLISTED = {key: value for key, value in HUMAN_EVAL.items() if key not in ("entry_points", "given")}
CALL = {"inputs": ["[1.0, 3.0]"], "outputs": ["[0.5, 1.5]"], "fn_name": "halves"}
STDIN = {"inputs": ["[1.0, 3.0]"], "outputs": ["[0.5, 1.5]"]}
STYLES = {"human_eval": HUMAN_EVAL, "mbpp": MBPP, "unlisted": UNLISTED, "call": CALL, "stdin": STDIN}
RIGHT = """
def halves(xs: List[float]):
    return [x / 2 for x in xs]

if __name__ == '__main__':
    print(halves(json.loads(input())))
"""
WRONG = "def halves(xs): return [0.5]\n"
VERDICT = b'{"value": "true", "status": 0}\n'

CHEATS = {
    "writes a verdict and exits": f"import os; os.write(3, {VERDICT}); os._exit(0)",
    "writes a verdict to every descriptor": f"""
import os
for fd in range(3, 300):
    try: os.write(fd, {VERDICT})
    except OSError: pass
os._exit(0)""",
    "writes a verdict at exit": f"import atexit, os; atexit.register(lambda: (os.write(3, {VERDICT}), os._exit(0)))",
    "adds to the verdict at exit": f"import atexit, os; atexit.register(os.write, 3, {VERDICT})",
    "writes a verdict when called": f"import os\ndef halves(xs): os.write(3, {VERDICT}); os._exit(0)",
    "writes a verdict in a fork": f"import os; os.fork() or (os.write(3, {VERDICT}), os._exit(0))",
    "pretends that it ran": f"import os; os.write(3, b'{{\"ran\": \"\"}}\\n'); os.read(3, 999); os.write(3, {VERDICT})",
    "answers in a thread": """
import os, re, threading
def answer():
    nonce = re.search(rb'"nonce": "(.*?)"', os.read(3, 99999))[1].decode()
    os.write(3, json.dumps({"key": "", "nonce": nonce, "value": "true"}).encode() + b"\\n")
threading.Thread(target=answer, daemon=True).start()""",
    "exits": "import os; os._exit(0)",
    "exits when called": "import os\ndef halves(xs): os._exit(0)",
    "ends with sys.exit": "import sys; sys.exit(0)",
    "ends when called": "def halves(xs): raise SystemExit(0)",
    "quits": "quit()",
    "closes its streams": "import os; os.closerange(0, 100)",
    "defines the harness's function": f"def {FUNCTION}(number): return True",
    "has the harness's function as a method": f"class Solution:\n    def {FUNCTION}(self, number): return True",
    "defines the check": "def check(candidate): pass\ncandidate = halves = lambda xs: xs",
    "defines it in __main__": f"import sys; setattr(sys.modules['__main__'], '{FUNCTION}', lambda number: True)",
    "redefines what tests use": "abs = lambda x: 0\nrange = lambda n: []\nAssertionError = BaseException",
    "replaces builtins": "import builtins; builtins.abs = lambda x: 0; builtins.range = lambda n: []",
    "replaces builtins of another module": "import os; os.__builtins__.update(abs=lambda x: 0, range=lambda n: [])",
    "replaces json.dumps": "import json; json.dumps = lambda *_, **__: 'true'",
    "replaces the JSON encoder": "import json.encoder as e; e.JSONEncoder.encode = lambda self, value: 'true'",
    "replaces the JSON decoder": f"""
import json.decoder
decode, fake = json.decoder.JSONDecoder().decode, {{"harness": "def {FUNCTION}(number): return True"}}
json.loads = lambda text: {{**decode(text), **fake}}
json.decoder.JSONDecoder.decode = lambda self, text: {{**decode(text), **fake}}""",
    "replaces os.write": f"import os; write = os.write; os.write = lambda fd, data: write(fd, {VERDICT})",
    "traces": f"""
import sys
def trace(frame, event, value):
    if frame.f_code.co_name == '{FUNCTION}': frame.f_trace_opcodes = False; frame.f_globals['check'] = len
    return trace
sys.settrace(trace); sys.setprofile(lambda frame, event, value: trace(frame, event, value) and None)""",
    "returns nothing": "def halves(xs): pass",
    "raises": "def halves(xs): raise AssertionError",
}  # fmt: skip
# These need a look at what the harness does, and work where it shares a process with the program.
DECEITS = {
    "equals everything": "class Yes:\n    def __eq__(self, other): return True\ndef halves(xs): return Yes()",
    "is a list that equals everything": """
class Yes(list):
    def __eq__(self, other): return True
    def __getitem__(self, index): return Number()
class Number(float):
    def __sub__(self, other): return 0
    __rsub__ = __sub__
def halves(xs): return Yes()""",
    "replaces functions that tests use": "import math; math.isclose = lambda *_: True\ndef halves(xs): return [0.5]",
    "leaves a module to be imported": f"open('math.py', 'w').write('isclose = lambda *_: True')\n{WRONG}",
    "reads the caller's frame": """
import sys
def halves(xs):
    frame = sys._getframe()
    while frame:
        for name, value in list(frame.f_globals.items()):
            if callable(value) and name in ('check', 'nemo_gym_test'): value.__code__ = (lambda *_: True).__code__
        frame = frame.f_back
    return [0.5]""",
    "looks for secrets": f"""
import gc, os
for found in gc.get_objects():
    if isinstance(found, dict) and 'key' in found: os.write(3, json.dumps({{**found, 'value': 'true'}}).encode())
{WRONG}""",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    config = {"num_processes": 2, "unit_test_timeout_secs": 1}
    servers = {name: (CodeGenResourcesServer, {**config, "harness_process": name}) for name in ("auto", "shared")}
    async with running(**servers) as running_client:
        yield running_client


async def score(client, server, program, tests):
    body = {
        "responses_create_params": asked("Halve.").model_dump(exclude_unset=True),
        "response": reply(f"```python\n{program}\n```").model_dump(),
        "verifier_metadata": {"unit_tests": tests},
    }
    answer = await client.post(server, "/verify", json=body)
    assert answer.status == 200, await answer.text()
    return (await answer.json())["reward"]


async def passed(client, server, programs, styles):
    """Return the programs that passed, and where."""
    tried = list(product(programs, styles))
    rewards = await asyncio.gather(*(score(client, server, programs[name], STYLES[style]) for name, style in tried))
    return [one for one, reward in zip(tried, rewards, strict=True) if reward != 0.0]


@pytest.mark.parametrize("server", ["auto", "shared"])
async def test_a_right_program_passes_in_every_style(server, client):
    assert await passed(client, server, {"right": RIGHT}, STYLES) == [("right", style) for style in STYLES]
    assert await passed(client, server, {"wrong": WRONG}, STYLES) == []


@pytest.mark.fault(
    place="Programming task",
    fault="A program writes a verdict, exits, or puts its own functions, builtins or modules in place of the tests'.",
    outcome="It scores 0 in HumanEval-, MBPP-, call-based and stdin-style tests, wherever their harness runs.",
)
@pytest.mark.parametrize("server", ["auto", "shared"])
async def test_no_one_liner_passes(server, client):
    programs = {name: f"{WRONG}{cheat}" for name, cheat in CHEATS.items()}
    assert await passed(client, server, programs, STYLES) == []


@pytest.mark.fault(
    place="Programming task",
    fault="A program returns an object that equals everything, or changes the harness through frames and modules.",
    outcome="It scores 0 where the harness has a process of its own, as tests with `entry_points` and calls do.",
)
async def test_no_deceit_passes_where_the_harness_has_its_own_process(client):
    assert await passed(client, "auto", DECEITS, ["human_eval", "mbpp", "call"]) == []


@pytest.mark.fault(
    place="Programming task",
    fault="A task tests a function whose name is also a builtin's or a common module's, and the program defines none.",
    outcome="It scores 0: nothing but the program can supply what is tested.",
)
async def test_what_is_tested_comes_from_the_program_alone(client):
    for name, test in (("sum", "assert sum([1, 2]) == 3"), ("gcd", "assert gcd(4, 6) == 2")):
        tests = unit_tests("", "", [test], [name])
        assert await score(client, "auto", "x = 1", tests) == 0.0
        assert await score(client, "auto", f"import math\ndef {name}(*xs): return {test.split()[-1]}", tests) == 1.0
