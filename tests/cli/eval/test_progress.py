# SPDX-License-Identifier: Apache-2.0
"""How a run is shown while it goes on: on a real terminal, in a log, or not at all."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._bench.fake_endpoint import running
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._results.aggregate_files import make_metric_table
from nemo_gym._results.run_summary import RunSummary, Standing
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.outcomes import Failed, Outcome, Scored
from nemo_gym._transport.failures import Failure
from nemo_gym._transport.retries import RETRIES
from nemo_gym._util.jsonl_files import write_rows
from nemo_gym.cli.eval.progress import open_screen, show_progress
from tests.support.measured import aggregate_files
from tests.support.terminal import OnTerminal, Screen, ScreenStream

AGENT = "example_single_tool_call_simple_agent"
EXAMPLES = PARENT_DIR / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
FRAME = re.compile(r"\d+%   [\d,]+/[\d,]+ rollouts")


def scored(reward: float, tokens: int = 0, task: int = 0, agent: str = "a") -> Outcome:
    usage = {"input_tokens": tokens, "output_tokens": tokens}
    row = {"_ng_task_index": task, "agent_ref": {"name": agent}}
    return Scored(row, {**row, "reward": reward, "response": {"usage": usage}}, 1, 0.1)


def failed(kind: str) -> Outcome:
    return Failed({}, Failure(kind, "/run", True, "because"), 1, 0.1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def standing(*outcomes: Outcome, requested: int | None = 10, after_s: float = 2.0, before: int = 0) -> Standing:
    clock = Clock()
    summary = RunSummary(requested, clock)
    for outcome in outcomes:
        summary.add(outcome)
    clock.now = after_s
    return Standing(summary, FixedLimit(4), RETRIES, before)


# --- in words ---------------------------------------------------------------------------------------------------------


def test_a_line_says_how_far_how_fast_how_good_and_what_failed():
    line = standing(scored(1.0, 600), scored(0.0, 640), failed("timeout"), failed("agent"), failed("agent")).line()
    assert line == (
        "5/10 rollouts | 2.5/s | 2.0s left | 0 in flight | reward 0.5 (n=2) | "
        "3 failed: agent 2, timeout 1 | tokens 1.24k in, 1.24k out"
    )


def test_the_reward_comes_with_the_interval_of_the_final_table(tmp_path):
    rollouts = [(task, rollout, reward) for task in range(3) for rollout, reward in enumerate((task % 2, 0.5))]
    shown = standing(*(scored(reward, task=task) for task, _, reward in rollouts)).reward
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}, "reward": reward}
        for task, rollout, reward in rollouts
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    _, _, value, interval, *_ = make_metric_table(aggregate_files([tmp_path / "r.jsonl"]))[1]
    assert shown == f"reward {value} ({interval}, n=6)"


def test_every_agent_has_a_reward_of_its_own():
    shown = standing(scored(1.0, agent="b"), scored(0.5, agent="a"), scored(0.0, agent="a")).reward
    assert shown == "reward 0.25 (n=2) a, 1 (0.025 … 1, n=1) b"


def test_calls_that_are_tried_again_are_counted_by_cause():
    running = standing()
    with RETRIES.count("429"), RETRIES.count("429"):
        assert running.retrying == "2 retrying (429)"
        with RETRIES.count("503"):
            assert "3 retrying (429 2, 503 1)" in running.line()
    assert running.retrying is None


def test_before_anything_has_ended_nothing_is_made_up():
    assert standing().line() == "0/10 rollouts | -/s | ? left | 0 in flight"
    assert standing(requested=None).line().startswith("0/? rollouts")


def test_a_resumed_run_counts_what_was_there_before_but_not_into_its_pace():
    line = standing(scored(1.0), before=90, requested=10).line()
    assert line.startswith("91/100 rollouts (90 before) | 0.5/s | 18s left")


def test_in_the_end_there_is_nothing_left_to_wait_for():
    over = standing(scored(1.0), after_s=75)
    over.summary.finish()
    assert over.line() == "1/10 rollouts | in 1m15s | 0.0/s | reward 1 (0.025 … 1, n=1)"


# --- where it is shown ------------------------------------------------------------------------------------------------


def play(outcomes: int, *, quiet: bool = False) -> None:
    with open_screen(quiet=quiet) as on, show_progress(RunSummary(outcomes), FixedLimit(1), on) as count:
        for _ in range(outcomes):
            count(scored(1.0))


def test_in_a_log_the_end_is_a_line(capsys: pytest.CaptureFixture[str]):
    play(3)
    assert capsys.readouterr().err.startswith("3/3 rollouts | in ")


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]):
    play(3, quiet=True)
    assert capsys.readouterr() == ("", "")


def test_the_end_is_shown_although_the_run_broke_off(capsys: pytest.CaptureFixture[str]):
    def break_off() -> None:
        with open_screen(quiet=False) as on, show_progress(RunSummary(2), FixedLimit(1), on) as count:
            count(scored(1.0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert "1/2 rollouts" in capsys.readouterr().err
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_rich_is_loaded_only_for_a_terminal():
    code = (
        "import sys; from nemo_gym.cli.eval.progress import *\n"
        "with open_screen(quiet=False) as on, show_progress(RunSummary(1), None, None): pass\n"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PARENT_DIR, check=False).returncode == 0


# --- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    rows = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps({**rows[n % len(rows)], "n": n}) + "\n" for n in range(40)))
    return path


def command_of(folder: Path, tasks: Path, url: str, *flags: str) -> list[str]:
    command = ["eval", "run", "--resources-server", "example_single_tool_call", "--model-type", "openai_model"]
    command += ["--model", "m", "--model-url", f"{url}/v1", "--model-api-key", "k", "-a", AGENT]
    return [*command, "-i", str(tasks), "-o", str(folder / "r.jsonl"), *flags]


@contextmanager
def eval_run(folder: Path, tasks: Path, url: str, *flags: str, columns: int) -> Iterator[OnTerminal]:
    command = [sys.executable, "-m", "nemo_gym.cli.main", *command_of(folder, tasks, url, *flags)]
    running = OnTerminal(command, columns=columns, cwd=folder)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(Settings(latency_ms=150)) as url:
        yield url


@pytest.fixture
def head(unused_tcp_port: int) -> str:
    return f"++head_server.port={unused_tcp_port}"


def frame_of(screen: Screen) -> list[str]:
    """The lines of the display that is on the screen now."""
    starts = [number for number, line in enumerate(screen.lines) if FRAME.search(line)]
    return [line for line in screen.lines[starts[-1] :] if line] if starts else []


FIELDS = ("/40 rollouts", "/s", "left", " in flight", "reward 1", "tokens", "in,", "out")


@pytest.mark.slow
def test_a_terminal_shows_one_display_that_moves_and_leaves_a_summary(tmp_path, tasks, url, head):
    with eval_run(tmp_path, tasks, url, head, "--concurrency", "8", columns=80) as run:
        run.read_until(lambda screen: "reward" in "".join(frame_of(screen)), "the first rollouts have ended")
        first = frame_of(run.screen)

        def has_moved(screen) -> bool:  # and is whole: a display is painted line by line
            frame = frame_of(screen)
            return frame[:1] != first[:1] and all(field in "".join(frame) for field in FIELDS)

        run.read_until(has_moved, "the display has moved on")
        assert run.screen.cursor_is_hidden
        moved = frame_of(run.screen)
        assert run.wait() == 0, run.screen.text
    text = "\n".join(moved)
    for field in (*FIELDS, "8 in flight"):
        assert field in text, text
    assert all(len(line) < 80 for line in moved), "a line that fills the terminal would wrap"
    assert sum(FRAME.search(line) is not None for line in run.screen.lines) == 0, "the display has given way"
    assert len(re.findall(r"40/40 rollouts   in ", run.screen.text)) == 1
    assert not run.screen.cursor_is_hidden
    assert run.screen.has_colours
    assert "40 scored of 40 requested" in run.screen.text


@pytest.mark.thorough
@pytest.mark.slow
def test_what_servers_print_meanwhile_stands_above_the_display_in_whole_lines(tmp_path, tasks, head):
    with running(Settings(latency_ms=100, faults={"500": 0.4})) as url:
        with eval_run(tmp_path, tasks, url, head, "--concurrency", "4", columns=100) as run:
            run.read_until(lambda screen: "failed:" in screen.text and bool(frame_of(screen)), "a server complains")
            run.interrupt()
            run.read_until(lambda screen: "Ctrl-C again" in screen.text, "the interrupt is answered")
            run.interrupt()  # or every failed call would be tried again, with pauses
            run.wait()
    complaints = [line for line in run.screen.lines if "POST /v1/responses failed" in line]
    assert complaints
    assert all(line.startswith("(policy_model)") for line in complaints), "no line begins within another"
    assert sum(FRAME.search(line) is not None for line in run.screen.lines) == 0, "no remains of an earlier display"
    for frame in run.frames:
        assert sum(FRAME.search(line) is not None for line in frame.splitlines()) <= 1


@pytest.fixture
def terminal(monkeypatch) -> Callable[..., Screen]:
    """Makes this process believe that it runs on a terminal."""

    def make(columns: int, **environment: str) -> Screen:
        screen = Screen(columns)
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, ScreenStream(screen))
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}.items():
            monkeypatch.setenv(name, value)
        return screen

    return make


@pytest.mark.parametrize("columns", [36, 60, 120])
def test_the_display_fits_terminals_of_any_width(columns, terminal):
    seen = terminal(columns)
    with open_screen(quiet=False) as on:
        now = standing(*[scored(1.0, 600)] * 10, requested=40)
        on.begin(now)
        on.refresh(now)
        drawn = frame_of(seen)
        text = "\n".join(drawn)
        assert [field for field in FIELDS if field not in text] == []
        assert all(len(line) < columns for line in drawn), "a line that fills the terminal would wrap"
        assert sum(FRAME.search(line) is not None for line in seen.lines) == 1
        now.summary.finish()
        on.end(now)
    assert sum(FRAME.search(line) is not None for line in seen.lines) == 0, "the display has given way"
    assert len(re.findall(r"10/40 rollouts   in ", seen.text)) == 1


def test_without_colours_there_are_none(terminal):
    seen = terminal(80, NO_COLOR="1")
    play(4)
    assert not seen.has_colours
    assert "4/4 rollouts   in " in seen.text


def test_a_dumb_terminal_gets_plain_lines(terminal):
    seen = terminal(80, TERM="dumb")
    play(4)
    assert "4/4 rollouts | in " in seen.text
    assert not seen.styles


@pytest.mark.thorough
@pytest.mark.slow
def test_three_interrupts_leave_the_terminal_as_it_was(tmp_path, tasks, head):
    with running(Settings(faults={"hang": 1.0})) as url:
        with eval_run(tmp_path, tasks, url, head, "--concurrency", "4", columns=80) as run:
            run.read_until(lambda screen: "4 in flight" in screen.text, "rollouts are under way")
            for answer in ("Ctrl-C again", "canceling running rollouts"):
                run.interrupt()
                run.read_until(lambda screen, answer=answer: answer in screen.text, "the interrupt is answered")
            run.interrupt()
            assert run.wait() == 130
    assert not run.screen.cursor_is_hidden


async def test_a_display_costs_a_rollout_next_to_nothing():
    """Counted, not timed: however many rollouts end, the display looks at them no more often than its clock says."""
    looks = 0

    class Counting:
        every_s = 0.02

        def begin(self, standing: Standing) -> None: ...

        def refresh(self, standing: Standing) -> None:
            nonlocal looks
            looks += 1

        def end(self, standing: Standing) -> None: ...

        def release(self) -> None: ...

    started = asyncio.get_running_loop().time()
    with show_progress(RunSummary(5000), FixedLimit(1), Counting()) as count:
        for number in range(5000):
            count(scored(1.0))
            if number % 500 == 0:
                await asyncio.sleep(0.01)
    assert looks <= (asyncio.get_running_loop().time() - started) / Counting.every_s
