# SPDX-License-Identifier: Apache-2.0
"""Generate the page of file formats. Its examples come from a run with four recorded rollouts and one that fails."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym._rollouts.run_paths import RunPaths
from scripts.reference.markdown import write_code, write_json, write_table
from scripts.reference.server_configs import ROOT, read_keys

SERVER = "resources_servers/example_single_tool_call"
INTRODUCTION = """\
# File formats

The files that `gym eval run --output rollouts.jsonl` writes. The examples come from a run of five tasks, made when this
page was built; null fields are omitted.
"""
MANIFEST = "nemo_gym._rollouts.run_manifest.Manifest"
COUNTS = "nemo_gym._rollouts.run_manifest.Counts"
ROW = {
    "responses_create_params": "the request to the model: input, tools, and sampling settings if the row has them",
    "response": "the conversation in OpenAI's Responses format: the model's turns and the tools' outputs",
    "reward": "the score",
    "_ng_task_index": "the task: its row number in the input, from 0",
    "_ng_rollout_index": "the rollout of the task, from 0",
    "agent_ref": "the agent that played it",
}
SOMETIMES = {
    "_ng_attempt_index": "how many times it failed before, across resumed runs",
    "_ng_rollout_id": "the id under which its model calls were recorded",
    "skills_ref": "the agent's skills",
    "_ng_tool_errors": "tools that crashed: a list of `tool`, `status` and `message`",
    "_ng_cut_off": "what ended it before the model did: `max_steps` or `length`",
    "_ng_policy_versions": "the policy versions during the rollout: `start`, `end` and `straddles`",
    "_ng_token_capture": "token ids and log-probs of its model calls",
    "mask_sample": "true if it must not be trained on",
}
FAILED_ROW = {
    "_ng_failure_class": "the failure kind, or the agent's own name for it",
    "_ng_failure_terminal": "true if it must not be retried; usually absent",
    "_ng_failure": "details of the failure; see below",
}
FAILURE = {
    "schema": "the version of this format",
    "kind": "what failed; [Failures](../concepts/failures.md) lists the kinds",
    "boundary": "the destination of the call that failed",
    "retryable": "whether another attempt may succeed",
    "message": "what happened",
    "cause": "a short label for counting: the HTTP status or the type of problem; absent if there is none",
    "traceback": "the traceback if a server's own code failed; else absent",
    "attempts": "how many times it was tried in this run",
    "elapsed_s": "how long all attempts took together",
    "at": "when it ended, in UTC",
}
METRICS = {
    "agent_ref": "the agent",
    "agent_metrics": "all of its metrics; [Metrics](../concepts/metrics.md) has the formulas",
    "key_metrics": "the few to look at first",
    "confidence": "for each mean over tasks: `estimate`, `ci95`, `stderr`, `n_tasks`, `n_scored`, `n_requested`",
    "tool_errors": "how many rollouts had a tool crash, and which tools",
    "cut_off": "how many rollouts were cut off, by cause",
    "group_level_metrics": "the same metrics for each task, one object per task",
}
PLAN = {key: ROW[key] for key in ("responses_create_params", "agent_ref", "_ng_task_index", "_ng_rollout_index")}


def write_page() -> str:
    """Make a run and write the page from its files."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
    scored = run["rollouts"]
    failed = run["failures"]
    agent = run["metrics"]
    agent["group_level_metrics"] = agent["group_level_metrics"][:1]
    manifest = run["manifest"]
    manifest["config"] = {"policy_model": manifest["config"]["policy_model"]}
    return "\n".join(
        [
            INTRODUCTION,
            "## Rollouts: `rollouts.jsonl`\n",
            "One scored rollout per line, in the order they ended. A row also has the keys that the environment and "
            "its `verify` add.\n",
            _write_fields(ROW),
            "Keys that only some rows have:\n",
            _write_fields(SOMETIMES),
            _write_example(scored),
            "## Failures: `rollouts_failures.jsonl`\n",
            "One rollout without a reward per line; it keeps its line even if a resumed run scores it. A line has "
            "`_ng_task_index`, `_ng_rollout_index` and `agent_ref`, anything the agent returned, and:\n",
            _write_fields(FAILED_ROW),
            "The fields of `_ng_failure`:\n",
            _write_fields(FAILURE),
            _write_example(failed),
            "## Manifest: `rollouts_run.json`\n",
            "What was run; `--resume` compares a run with it. In the example, `config` has only one server.\n",
            _write_class(MANIFEST),
            "The fields of `counts`:\n",
            _write_class(COUNTS),
            _write_example(manifest),
            "## Metrics: `rollouts_aggregate_metrics.json`\n",
            "A list with one object per agent. In the example, `group_level_metrics` is cut to one task.\n",
            _write_fields(METRICS),
            _write_example([agent]),
            "## Plan: `rollouts_materialized_inputs.jsonl`\n",
            "Every planned rollout, one per line: the rows of the input, completed and repeated. All other keys of a "
            "row are kept unchanged.\n",
            _write_fields(PLAN),
            _write_example(run["plan"]),
            "## Journal\n",
            "The rollouts and failures files are the journal of a run: lines are only appended, each in one write, "
            "and both files are synced once a second. `--resume` runs the rollouts that are in neither. If a machine "
            "crash truncates the last line, it is moved to `<file>.torn` and its rollout is run again. During a run "
            "there are also `rollouts_run.lock`, which prevents a second run and holds the process id, and "
            "`rollouts_scores.jsonl.partial`, the scores without their conversations.\n",
        ]
    )


def make_run(folder: Path) -> dict[str, Any]:
    """Run five tasks, one of which is not in the recording, and return the first record of every file."""
    recording = folder / "recorded.jsonl"
    output = folder / "rollouts.jsonl"
    rows = (ROOT / SERVER / "data" / "example_rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    recording.write_text("\n".join(rows[:4]) + "\n", encoding="utf-8")
    arguments = [
        *("--config", f"{SERVER}/configs/example_single_tool_call.yaml"),
        *("--config", "responses_api_models/replay_model/configs/replay_model.yaml"),
        *("--input", f"{SERVER}/data/example.jsonl", "--output", str(output), "--allow-failures", "1"),
        f"++policy_model.responses_api_models.replay_model.rollouts_jsonl_fpath={recording}",
    ]
    command = [sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the run for the file format examples failed:\n{done.stderr}")
    paths = RunPaths.of(output)
    lines = {"rollouts": output, "failures": paths.failures, "plan": paths.materialized}
    found = {name: _parse(path.read_text(encoding="utf-8").splitlines()[0], folder) for name, path in lines.items()}
    found["manifest"] = _parse(paths.manifest.read_text(encoding="utf-8"), folder)
    (found["metrics"],) = _parse(paths.aggregate_metrics.read_text(encoding="utf-8"), folder)
    return found


def _parse(text: str, folder: Path) -> Any:
    """Return a record without the paths of this machine."""
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
