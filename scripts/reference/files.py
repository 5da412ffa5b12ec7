# SPDX-License-Identifier: Apache-2.0
"""The page of file formats. Its examples come from a run made for it: four recorded rollouts, and one that fails."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym._rollouts.paths import RunPaths
from scripts.reference.markdown import write_code, write_json, write_table
from scripts.reference.server_configs import ROOT, read_keys

SERVER = "resources_servers/example_single_tool_call"
INTRODUCTION = """\
# File formats

What `gym eval run --output rollouts.jsonl` writes, side by side. The examples are from a run of five tasks, made when
this page was built; fields that were null are left out of them.
"""
MANIFEST = "nemo_gym._rollouts.manifest.Manifest"
COUNTS = "nemo_gym._rollouts.manifest.Counts"
ROW = {
    "responses_create_params": "what the model was asked: the input, the tools, and sampling if the row says it",
    "response": "what came back, in the form of OpenAI's Responses API: the model's turns and the tools' answers",
    "reward": "the score",
    "_ng_task_index": "which task: the number of its row in the input, from 0",
    "_ng_rollout_index": "which attempt at the task, from 0",
    "agent_ref": "the agent that played it",
}
SOMETIMES = {
    "_ng_attempt_index": "how often it had failed before, over resumed runs",
    "_ng_rollout_id": "the id under which its model calls were recorded",
    "skills_ref": "the skills that the agent had",
    "_ng_tool_errors": "tools that crashed: a list of `tool`, `status` and `message`",
    "_ng_cut_off": "what ended it before the model did: `max_steps` or `length`",
    "_ng_policy_versions": "the versions of the weights that it saw: `start`, `end` and `straddles`",
    "_ng_token_capture": "token ids and log-probs of its model calls",
    "mask_sample": "true if it must not be trained on",
}
FAILED_ROW = {
    "_ng_failure_class": "the kind again, or the agent's own word for it",
    "_ng_failure_terminal": "true if it is never to be played again; mostly absent",
    "_ng_failure": "what is known of the failure; see below",
}
FAILURE = {
    "schema": "the version of this form",
    "kind": "what failed; [Failures](../concepts/failures.md) lists the kinds",
    "boundary": "the call that failed: where it went",
    "retryable": "whether another attempt may fare better",
    "message": "what happened, in words",
    "cause": "in a word, for counting: the status that was answered, or the kind of trouble; absent if there is none",
    "traceback": "where a server's own code went wrong; absent if it did not",
    "attempts": "how often it was tried in this run",
    "elapsed_s": "how long all attempts took together",
    "at": "when it ended, in UTC",
}
METRICS = {
    "agent_ref": "the agent",
    "agent_metrics": "all its metrics; [Metrics](../concepts/metrics.md) has the formulas",
    "key_metrics": "the few to look at first",
    "confidence": "for each mean over tasks: `estimate`, `ci95`, `stderr`, `n_tasks`, `n_scored`, `n_requested`",
    "tool_errors": "rollouts that met a crashed tool, and which tools",
    "cut_off": "rollouts that were cut off, by what cut them off",
    "group_level_metrics": "the same numbers for each task, one object a task",
}
PLAN = {key: ROW[key] for key in ("responses_create_params", "agent_ref", "_ng_task_index", "_ng_rollout_index")}


def write_page() -> str:
    """Make a run, and write the page from its files."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
    scored, failed, agent = run["rollouts"], run["failures"], run["metrics"]
    agent["group_level_metrics"] = agent["group_level_metrics"][:1]
    manifest = run["manifest"]
    manifest["config"] = {"policy_model": manifest["config"]["policy_model"]}
    return "\n".join(
        [
            INTRODUCTION,
            "## Rollouts: `rollouts.jsonl`\n",
            "One scored rollout a line, in the order in which they ended. What the environment and its `verify` put "
            "into a row stands beside these keys.\n",
            _write_fields(ROW),
            "Keys of some rows only:\n",
            _write_fields(SOMETIMES),
            _write_example(scored),
            "## Failures: `rollouts_failures.jsonl`\n",
            "One rollout without a reward a line; one that a resumed run has scored since keeps its line. A line has "
            "`_ng_task_index`, `_ng_rollout_index` and `agent_ref`, what the agent said, if anything, and:\n",
            _write_fields(FAILED_ROW),
            "The fields of `_ng_failure`:\n",
            _write_fields(FAILURE),
            _write_example(failed),
            "## Manifest: `rollouts_run.json`\n",
            "What the run was. A resumed run is compared with it. In the example, `config` has one server only.\n",
            _write_class(MANIFEST),
            "The fields of `counts`:\n",
            _write_class(COUNTS),
            _write_example(manifest),
            "## Metrics: `rollouts_aggregate_metrics.json`\n",
            "A list with one object for each agent. In the example, `group_level_metrics` is cut down to one task.\n",
            _write_fields(METRICS),
            _write_example([agent]),
            "## Plan: `rollouts_materialized_inputs.jsonl`\n",
            "Every rollout that was planned, one a line: the rows of the input, completed and repeated. All other keys "
            "of a row are kept as they are.\n",
            _write_fields(PLAN),
            _write_example(run["plan"]),
            "## Journal\n",
            "The rollouts and failures files are the journal of a run: lines are only ever appended, each is handed to "
            "the system whole, and both are synced once a second. `--resume` plays what neither holds. An end that a "
            "crash of the machine tore off is moved to `<file>.torn`, and its rollout is played again. While a run "
            "lasts there are also `rollouts_run.lock`, which keeps a second run away and holds the number of the "
            "process, and `rollouts_scores.jsonl.partial`, the scores without their conversations.\n",
        ]
    )


def make_run(folder: Path) -> dict[str, Any]:
    """Play five tasks, one of which is not in the recording, and return the first record of every file."""
    recording, output = folder / "recorded.jsonl", folder / "rollouts.jsonl"
    rows = (ROOT / SERVER / "data" / "example_rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    recording.write_text("\n".join(rows[:4]) + "\n", encoding="utf-8")
    words = [
        *("--config", f"{SERVER}/configs/example_single_tool_call.yaml"),
        *("--config", "responses_api_models/replay_model/configs/replay_model.yaml"),
        *("--input", f"{SERVER}/data/example.jsonl", "--output", str(output), "--allow-failures", "1"),
        f"++policy_model.responses_api_models.replay_model.rollouts_jsonl_fpath={recording}",
    ]
    command = [sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the run for the examples of the file formats failed:\n{done.stderr}")
    paths = RunPaths.of(output)
    lines = {"rollouts": output, "failures": paths.failures, "plan": paths.materialized}
    found = {name: _read(path.read_text(encoding="utf-8").splitlines()[0], folder) for name, path in lines.items()}
    found["manifest"] = _read(paths.manifest.read_text(encoding="utf-8"), folder)
    (found["metrics"],) = _read(paths.aggregate_metrics.read_text(encoding="utf-8"), folder)
    return found


def _read(text: str, folder: Path) -> Any:
    """Return a record without the names of the folders that it happened to be made in."""
    return json.loads(text.replace(f"{folder}/", "").replace(f"{ROOT}/", "").replace(str(ROOT), "."))


def _write_example(record: Any) -> str:
    return write_json(json.dumps(_drop_nulls(record), indent=2, ensure_ascii=False))


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_drop_nulls(inner) for inner in value] if isinstance(value, list) else value


def _write_fields(fields: Mapping[str, str]) -> str:
    return write_table(("key", "what"), ((write_code(name), about) for name, about in fields.items()))


def _write_class(path: str) -> str:
    rows = [(write_code(key.name.rstrip("_")), write_code(key.type), key.about) for key in read_keys(path)]
    return write_table(("key", "type", "what"), rows)
