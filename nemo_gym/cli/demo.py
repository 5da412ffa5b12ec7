# SPDX-License-Identifier: Apache-2.0
"""`gym demo`: a real evaluation in one command, without a key.

It is `gym eval run` with everything filled in, then transcripts and next steps. Every flag of `gym eval run` that
makes sense here works and overrides what is filled in.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nemo_gym import grading
from nemo_gym._config.command_flags import Flag
from nemo_gym._config.overrides import override_token
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.row_keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.cli import render
from nemo_gym.cli.default_model import ENDPOINT_KEYS, LOCAL, explain_missing_engine, find_model_config
from nemo_gym.cli.eval.run import run
from nemo_gym.cli.eval.run_settings import EvalRunConfig
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.main import program_name
from nemo_gym.cli.settings import split_off

ENVIRONMENT = "first_steps"
OUTPUT = "results/demo/rollouts.jsonl"
_DEFAULTS: dict[str, Any] = {
    "input_jsonl_fpath": f"resources_servers/{ENVIRONMENT}/data/demo.jsonl",
    "agent_name": f"{ENVIRONMENT}_simple_agent",
    "output_jsonl_fpath": OUTPUT,
    "num_repeats": 4,
    "responses_create_params.temperature": 0.7,
}
# The small model's answers are a few words long, but sometimes it does not stop. One rollout at a time is fastest: the
# repeats of a task then find their prompt in the model's cache, and reading prompts is nearly all of the work.
_LOCAL_MODEL_DEFAULTS = {"responses_create_params.max_output_tokens": 32, "num_samples_in_parallel": 1}
_SHOWN_CHARACTERS = 400
_OUTCOMES = ("passed", "failed", "mixed")


class DemoConfig(EvalRunConfig):
    """Try an evaluation: a small environment and a model that needs no key."""

    seed: Annotated[int | None, Flag()] = Field(
        default=None, description="Seed of the local model, or of the training."
    )
    train: Annotated[bool, Flag()] = Field(
        default=False, description="Watch a small model learn instead, on this machine's CPU."
    )
    training_steps: Annotated[int | None, Flag("--steps")] = Field(
        default=None, description="With --train: how many steps to train."
    )


def demo(overrides: list[str]) -> int:
    """Run the evaluation, show transcripts and next steps; return the evaluation's exit code."""
    own, rest = split_off(overrides, "config_paths", "seed", "train", "training_steps")
    if own.get("train"):
        return _train(own, rest)
    if "training_steps" in own:
        raise UsageError("--steps is for `demo --train`")
    given = {token.lstrip("+").partition("=")[0] for token in rest}
    is_local = "config_paths" not in own and not given & set(ENDPOINT_KEYS)
    if "seed" in own and not is_local:
        raise UsageError(f"--seed is for {LOCAL}, the demo's default model")
    if is_local:
        render.note(
            "\n".join([f"running {ENVIRONMENT} with {LOCAL} on this machine's CPU, no key", *explain_missing_engine()])
        )
    filled_in = dict(_DEFAULTS)
    models = own.get("config_paths", [])
    if is_local:
        filled_in |= _LOCAL_MODEL_DEFAULTS
        models = [find_model_config(LOCAL)]
    if own.get("seed") is not None:
        filled_in[f"policy_model.responses_api_models.{LOCAL}.seed"] = own["seed"]
    filled_in["config_paths"] = [f"resources_servers/{ENVIRONMENT}/configs/{ENVIRONMENT}.yaml", *models]
    code = run([*(override_token(key, value) for key, value in filled_in.items() if key not in given), *rest])
    if not {"json=true", "no_serve=true"} & {token.lstrip("+") for token in rest}:
        output = split_off(rest, "output_jsonl_fpath")[0].get("output_jsonl_fpath", OUTPUT)
        _show(Path(str(output)))
    return code


def _train(own: Mapping[str, Any], rest: Sequence[str]) -> int:
    from nemo_gym.cli.demo_train import TrainingSettings, train

    paths, others = split_off(rest, "output_jsonl_fpath")
    if others or "config_paths" in own:
        raise UsageError("`demo --train` takes --seed, --steps and --output (a folder), and nothing else")
    given = {"seed": own.get("seed"), "steps": own.get("training_steps"), "folder": paths.get("output_jsonl_fpath")}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "folder" in chosen:
        chosen["folder"] = Path(str(chosen["folder"]))
    return train(TrainingSettings(**chosen))


def _show(output: Path) -> None:
    rollouts = list(read_rows(output, torn_tail_ok=True)) if output.exists() else []
    if rollouts:
        render.data("\n" + "\n\n".join(choose_transcripts(rollouts)))
    render.data("\n" + "\n".join(list_next_commands(output)))


# --- transcripts ------------------------------------------------------------------------------------------------------


def choose_transcripts(rollouts: Iterable[Row]) -> list[str]:
    """Return the transcripts of a task always solved, one never solved and one in between, if they exist."""
    tasks: dict[int, list[Row]] = {}
    for rollout in sorted(rollouts, key=lambda row: (row[TASK_INDEX_KEY_NAME], row[ROLLOUT_INDEX_KEY_NAME])):
        tasks.setdefault(rollout[TASK_INDEX_KEY_NAME], []).append(rollout)
    picked: dict[str, list[Row]] = {}
    for task in tasks.values():
        picked.setdefault(_name_outcome(task), task)
    return [_write_transcript(picked[outcome]) for outcome in _OUTCOMES if outcome in picked]


def _name_outcome(task: Sequence[Row]) -> str:
    rewards = {rollout["reward"] for rollout in task}
    always, never, sometimes = _OUTCOMES
    if rewards == {1.0}:
        return always
    if rewards == {0.0}:
        return never
    return sometimes


def _write_transcript(task: Sequence[Row]) -> str:
    """Write the conversation of a task once, then the model's answer in every rollout."""
    first = task[0]
    count = len(task)
    right = sum(rollout["reward"] == 1 for rollout in task)
    lines = [
        f"{_name_outcome(task)}: task {first[TASK_INDEX_KEY_NAME]} ({first['category']}), {right} of {count} right"
    ]
    lines += [f"  {turn['role']:9} │ {_clean(turn['content'])}" for turn in first["responses_create_params"]["input"]]
    for rollout in task:
        said = _clean(grading.assistant_text(rollout["response"])) or "(nothing)"
        lines.append(f"  {'→ model':9} │ {said}    reward {rollout['reward']:g}")
    return "\n".join(lines)


def _clean(text: Any) -> str:
    """Return the text on one line, without control characters, truncated if it is long."""
    flat = re.sub(r"\s", " ", str(text).strip())
    flat = "".join(char if char.isprintable() else "�" for char in flat)
    if len(flat) > _SHOWN_CHARACTERS:
        return f"{flat[:_SHOWN_CHARACTERS]} …"
    return flat


# --- what next --------------------------------------------------------------------------------------------------------


def list_next_commands(output: Path) -> list[str]:
    """Return commands for a newcomer to try next, as they would be typed here."""
    gym = program_name()
    commands = [
        ("look at every rollout", f"{gym} view {output}"),
        ("find the hard tasks", f"{gym} eval profile --rollouts {output} --pass-threshold 1"),
        (
            "use your own model",
            f"{gym} demo --model-type openai_model --model NAME --model-url URL --model-api-key KEY",
        ),
        ("write an environment", f"{gym} env init --resources-server my_environment"),
    ]
    return ["next:", *(f"  {what:22} {command}" for what, command in commands)]
