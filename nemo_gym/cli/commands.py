# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Flags become override tokens (`--model x` is `++policy_model_name=x`), so that a command sees one language only.
Commands are imported when they run, which keeps `gym --help` instant.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Flag:
    """A command-line flag and the config key that it sets."""

    name: str
    key: str
    help: str
    kind: Literal["value", "number", "switch", "config", "component", "search_dir"] = "value"
    short: str | None = None


@dataclass(frozen=True)
class Command:
    """One command of a group."""

    implementation: str
    help: str
    flags: tuple[Flag, ...] = field(default=())


CONFIG = Flag("--config", "config_paths", "a YAML config file; may be repeated, later ones win", "config")
RESOURCES_SERVER = Flag("--resources-server", "resources_servers", "a resources server by its name", "component")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "a model server by its name", "component")
SEARCH_DIR = Flag("--search-dir", "", "look for servers and configs here first; may be repeated", "search_dir")
SELECTORS = (CONFIG, RESOURCES_SERVER, MODEL_TYPE, SEARCH_DIR)
MODEL = (
    Flag("--model", "policy_model_name", "the name of the model", short="-m"),
    Flag("--model-url", "policy_base_url", "the base URL of the model's endpoint"),
    Flag("--model-api-key", "policy_api_key", "the API key of the model's endpoint"),
)
JSON = Flag("--json", "json", "print JSON", "switch")

EVAL_RUN = (
    Flag("--no-serve", "no_serve", "use servers that run already", "switch"),
    Flag("--resume", "resume_from_cache", "play only what the output does not hold yet", "switch"),
    Flag("--agent", "agent_name", "the agent of rows that name none", short="-a"),
    Flag("--input", "input_jsonl_fpath", "the tasks: JSONL, plain, gzip or a pipe", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the rollouts go", short="-o"),
    Flag("--limit", "limit", "take only so many tasks", "number"),
    Flag("--num-repeats", "num_repeats", "rollouts per task: a number, or {agent: n, _default: n}", "number"),
    Flag("--prompt-config", "prompt_config", "a prompt template applied to every row"),
    Flag("--concurrency", "num_samples_in_parallel", "rollouts at once; adapts to the endpoint if not given", "number"),
    Flag("--split", "split", "which datasets of the config to play: train, validation, example, benchmark"),
    Flag("--temperature", "responses_create_params.temperature", "sampling temperature", "number"),
    Flag("--top-p", "responses_create_params.top_p", "nucleus sampling", "number"),
    Flag("--max-output-tokens", "responses_create_params.max_output_tokens", "tokens per reply", "number"),
    Flag("--disable-aggregation", "disable_aggregation", "write rollouts only", "switch"),
    Flag("--timeout", "rollout_timeout_seconds", "deadline of one rollout, in seconds", "number"),
    Flag("--allow-failures", "allow_failures", "how many rollouts may fail: a number or a percentage"),
    Flag("--max-failure-rate", "max_failure_rate", "stop early at this share of failures, such as 0.5", "number"),
    Flag("--quiet", "quiet", "show no progress", "switch"),
)

AGGREGATE = (
    CONFIG,
    Flag("--input-glob", "input_glob", "rollouts files: paths and wildcards, separated by commas", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the merged rollouts go", short="-o"),
    JSON,
)
COMPARE = (Flag("--pass-threshold", "pass_threshold", "reward from which a rollout has passed", "number"), JSON)
PROFILE = (
    Flag("--inputs", "materialized_inputs_jsonl_fpath", "what was planned; by default beside the rollouts"),
    Flag("--rollouts", "rollouts_jsonl_fpath", "the rollouts file"),
    Flag("--allow-partial", "allow_partial_rollouts", "some planned rollouts may be missing", "switch"),
    Flag("--pass-threshold", "pass_threshold", "reward from which a rollout has passed", "number"),
)

REVERIFY = (
    Flag("--inputs", "materialized_inputs_jsonl_fpath", "what was planned; by default beside the rollouts"),
    Flag("--rollouts", "rollouts_jsonl_fpath", "the stored rollouts"),
    Flag("--output", "output_jsonl_fpath", "where the new scores go", short="-o"),
    Flag("--concurrency", "num_samples_in_parallel", "verifications at once", "number"),
    Flag("--limit", "limit", "only the first so many", "number"),
    Flag("--force", "force", "also with verifiers that are not known to be stateless", "switch"),
    Flag("--overwrite", "overwrite", "replace an output that exists", "switch"),
    Flag("--resume", "resume_from_cache", "only what the output does not hold yet", "switch"),
    Flag("--disable-aggregation", "disable_aggregation", "write rollouts only", "switch"),
    Flag("--judge-failed-only", "judge_failed_only", "only rollouts whose judge gave no verdict", "switch"),
    Flag("--append", "append", "add to an output that exists", "switch"),
    JSON,
)

GROUPS: dict[str, dict[str, Command]] = {
    "env": {
        "start": Command("nemo_gym.cli.env:start", "start the servers of a config", (*SELECTORS, *MODEL)),
        "validate": Command(
            "nemo_gym.cli.env:validate", "check a config without starting anything", (*SELECTORS, *MODEL)
        ),
        "prefetch": Command(
            "nemo_gym.cli.env:prefetch", "build the environments of servers without starting them", (*SELECTORS, *MODEL)
        ),
        "status": Command("nemo_gym.cli.env:status", "show the servers that run and their health", (JSON,)),
        "resolve": Command("nemo_gym.cli.env:resolve", "print the merged config, secrets hidden", SELECTORS),
    },
    "eval": {
        "aggregate": Command("nemo_gym.cli.eval_files:aggregate", "merge shards and compute their metrics", AGGREGATE),
        "compare": Command("nemo_gym.cli.eval_files:compare", "compare runs task by task: FILE FILE ...", COMPARE),
        "profile": Command("nemo_gym.cli.eval_files:profile", "statistics of the rewards of every task", PROFILE),
        "reverify": Command("nemo_gym.cli.reverify:reverify", "score stored responses again", (*SELECTORS, *REVERIFY)),
        "run": Command("nemo_gym.cli.eval:run", "play tasks and score them", (*SELECTORS, *MODEL, *EVAL_RUN, JSON)),
    },
}

GROUP_HELP = {"env": "run and inspect servers", "eval": "collect rollouts and see what they came to"}

LEGACY: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "version": ("--version",),
    "run": ("env", "start"),
    "validate": ("env", "validate"),
    "dump_config": ("env", "resolve"),
    "status": ("env", "status"),
    "pip_list": ("env", "packages"),
    "init_resources_server": ("env", "init"),
    "test": ("env", "test"),
    "test_all": ("env", "test"),
    "dev_test": ("dev", "test"),
    "collect_rollouts": ("eval", "run", "--no-serve"),
    "e2e_collect_rollouts": ("eval", "run"),
    "aggregate_rollouts": ("eval", "aggregate"),
    "reward_profile": ("eval", "profile"),
    "profile": ("eval", "profile"),
    "prepare_benchmark": ("eval", "prepare"),
    "list_benchmarks": ("list", "benchmarks"),
    "materialize_prompts": ("dataset", "render"),
    "prepare_data": ("dataset", "collate"),
    "viewer": ("view",),
    "upload_dataset_to_gitlab": ("dataset", "upload", "--storage", "gitlab"),
    "download_dataset_from_gitlab": ("dataset", "download", "--storage", "gitlab"),
    "delete_dataset_from_gitlab": ("dataset", "rm"),
    "upload_dataset_to_hf": ("dataset", "upload"),
    "download_dataset_from_hf": ("dataset", "download"),
    "gitlab_to_hf_dataset": ("dataset", "migrate"),
    "reinstall": ("dev", "reinstall"),
}
