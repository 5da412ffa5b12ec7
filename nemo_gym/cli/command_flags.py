# SPDX-License-Identifier: Apache-2.0
"""What a command, a flag and a bare word are, and all flags; which command takes which is in `commands.py`."""

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Flag:
    """A command-line flag and what its value becomes, by its kind:

    value       text, kept exactly as it was given: `++key='text'`
    number      a number or a mapping, in the grammar of overrides: `++key=5`
    switch      takes no value: `++key=true`, or `++key=<constant>`
    config      a config file, put into `config_paths`
    collection  the config of the folder `<key>/NAME`, or `NAME/FLAVOUR`, put into `config_paths`
    component   the config of the server `<key>/NAME`, or `NAME/FLAVOUR`, put into `config_paths`
    entrypoint  the folder of the server itself: `++entrypoint='<key>/NAME'`
    search_dir  a folder that servers, configs and data are looked for in first
    """

    name: str
    key: str
    help: str
    kind: Literal["value", "number", "switch", "config", "collection", "component", "entrypoint", "search_dir"] = (
        "value"
    )
    short: str | None = None
    choices: tuple[str, ...] = ()
    """The values it takes, if they are few."""
    also: tuple[str, ...] = ()
    """Further keys that get the same value."""
    count: int = 1
    """How many values it takes; more than one become a list."""
    constant: str = "true"
    """What a switch sets its key to."""


@dataclass(frozen=True)
class Positional:
    """A bare word of a command line and the key that it sets: `gym view FILE` is `gym view ++jsonl_fpath='FILE'`.

    Bare words fill the positionals of a command in their order. `+key=value` and `key=value` are overrides wherever
    they stand; after `--` every word is a bare one, so that a file may be called `a=b` or `-x`. No word is required
    here: the settings of the command say which keys it cannot do without.
    """

    name: str
    key: str
    help: str
    many: bool = False
    """The last positional of a command may take all words that are left, as a list."""
    optional: bool = False
    """Left out first where there are fewer words than positionals: `search [TYPE] QUERY`."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One command: `implementation` is `module:function`, called with the overrides, and returns the exit code.

    `settings` is `module:Class`, the pydantic class of the keys that the command reads; `+help=true` shows it. Modules
    of `nemo_gym.cli` are written without that prefix.
    """

    implementation: str
    help: str
    flags: tuple[Flag, ...] = field(default=())
    positionals: tuple[Positional, ...] = field(default=())
    settings: str = ""


def load(reference: str) -> Any:
    """Import the function or class that `module:name` of a command stands for."""
    module, _, name = reference.partition(":")
    path = module if module.startswith("nemo_gym.") else f"nemo_gym.cli.{module}"
    return getattr(importlib.import_module(path), name)


CONFIG = Flag("--config", "config_paths", "a YAML config file; may be repeated, later ones win", "config")
BENCHMARK = Flag("--benchmark", "benchmarks", "a benchmark by its name", "collection")
ENVIRONMENT = Flag("--environment", "environments", "an environment by its name", "collection")
RESOURCES_SERVER = Flag("--resources-server", "resources_servers", "a resources server by its name", "component")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "a model server by its name", "component")
SEARCH_DIR = Flag("--search-dir", "", "look for servers and configs here first; may be repeated", "search_dir")
ALLOW_UNKNOWN = Flag("--allow-unknown-keys", "allow_unknown_keys", "keep overrides that nothing reads", "switch")
SELECTORS = (CONFIG, BENCHMARK, ENVIRONMENT, RESOURCES_SERVER, MODEL_TYPE, SEARCH_DIR)
MODEL = (
    Flag("--model", "policy_model_name", "the name of the model", short="-m"),
    Flag("--model-url", "policy_base_url", "the base URL of the model's endpoint"),
    Flag("--model-api-key", "policy_api_key", "the API key of the model's endpoint"),
    ALLOW_UNKNOWN,
)
EXPLAIN = Flag("--explain", "explain", "who gives this key its value, file and line, and what that overrides")
JSON = Flag("--json", "json", "print JSON", "switch")
QUIET = Flag("--quiet", "quiet", "show no progress", "switch")
DISABLE_AGGREGATION = Flag("--disable-aggregation", "disable_aggregation", "write rollouts only, no metrics", "switch")
INPUTS = Flag("--inputs", "materialized_inputs_jsonl_fpath", "the planned rollouts; by default beside the rollouts")
PASS_THRESHOLD = Flag("--pass-threshold", "pass_threshold", "reward from which a rollout counts as passed", "number")

EVAL_RUN = (
    Flag("--no-serve", "no_serve", "use servers that are already running", "switch"),
    Flag("--resume", "resume_from_cache", "play only what is missing from the output", "switch"),
    Flag("--agent", "agent_name", "the agent of rows that name none", short="-a"),
    Flag("--input", "input_jsonl_fpath", "the tasks: JSONL, plain, gzip or a pipe", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the rollouts go", short="-o"),
    Flag("--limit", "limit", "play at most N tasks", "number"),
    Flag("--num-repeats", "num_repeats", "rollouts per task: a number, or {agent: n, _default: n}", "number"),
    Flag("--shard", "shard", "K/N: play part K of N of the tasks; `gym eval aggregate` puts the parts together"),
    Flag("--prompt-config", "prompt_config", "a prompt template applied to every row"),
    Flag("--concurrency", "num_samples_in_parallel", "rollouts at once; adapts to the endpoint if not given", "number"),
    Flag(
        "--split",
        "split",
        "which datasets of the config to play",
        choices=("train", "validation", "example", "benchmark"),
    ),
    Flag("--temperature", "responses_create_params.temperature", "sampling temperature", "number"),
    Flag("--top-p", "responses_create_params.top_p", "nucleus sampling", "number"),
    Flag("--max-output-tokens", "responses_create_params.max_output_tokens", "tokens per reply", "number"),
    DISABLE_AGGREGATION,
    Flag("--timeout", "rollout_timeout_seconds", "deadline of one rollout, in seconds", "number"),
    Flag("--allow-failures", "allow_failures", "how many rollouts may fail: a number or a percentage"),
    Flag("--fail-on-tool-error", "fail_on_tool_error", "a rollout in which a tool crashed is a failure", "switch"),
    Flag("--max-failure-rate", "max_failure_rate", "stop early at this share of failures, such as 0.5", "number"),
    Flag("--wait-for-model", "wait_for_model", "seconds to wait for a model that is still loading", "number"),
    QUIET,
)

DEMO = (
    Flag("--seed", "seed", "seed of the local model", "number"),
    *(
        flag
        for flag in EVAL_RUN
        if flag.name not in ("--agent", "--input", "--prompt-config", "--shard", "--split", "--no-serve")
    ),
)

AGGREGATE = (
    CONFIG,
    Flag("--input-glob", "input_glob", "rollouts files: paths and wildcards, separated by commas", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the merged rollouts go", short="-o"),
    JSON,
)
COMPARE_FILES = Positional("FILE", "rollouts_jsonl_fpaths", "rollouts files, the first one the baseline", many=True)
COMPARE = (PASS_THRESHOLD, JSON)
PREPARE = (
    Flag("--cached", "use_cached_prepared_benchmarks", "skip benchmarks that are already prepared", "switch"),
    Flag("--processes", "num_prepare_benchmark_processes", "how many scripts to run at once", "number"),
)
PROFILE = (
    INPUTS,
    Flag("--rollouts", "rollouts_jsonl_fpath", "the rollouts file"),
    Flag("--allow-partial", "allow_partial_rollouts", "accept that planned rollouts are missing", "switch"),
    PASS_THRESHOLD,
    JSON,
)

REVERIFY = (
    INPUTS,
    Flag("--rollouts", "rollouts_jsonl_fpath", "the stored rollouts"),
    Flag("--output", "output_jsonl_fpath", "where the new scores go", short="-o"),
    Flag("--concurrency", "num_samples_in_parallel", "verifications at once", "number"),
    Flag("--limit", "limit", "score only the first N rollouts", "number"),
    Flag("--force", "force", "score also with verifiers that may keep state", "switch"),
    Flag("--overwrite", "overwrite", "replace an output that exists", "switch"),
    Flag("--resume", "resume_from_cache", "score only what is missing from the output", "switch"),
    DISABLE_AGGREGATION,
    Flag("--judge-failed-only", "judge_failed_only", "score only rollouts whose judge gave no verdict", "switch"),
    Flag("--append", "append", "add to an output that exists", "switch"),
    QUIET,
    JSON,
)

CATALOG_TYPES = ("benchmarks", "environments", "agents", "models", "resources-servers")
NAME = Positional("NAME", "component_name", "show everything that is known about this one", optional=True)
DOMAIN = Flag("--domain", "domain", "only those of this domain, such as math")
MANIFEST_FILTERS = (
    DOMAIN,
    Flag("--modality", "modality", "only those of this modality"),
    Flag("--licensing", "licensing", "only those under this licence"),
    Flag("--status", "status", "only those of this status", choices=("experimental", "no-manifest")),
    Flag("--lifecycle", "lifecycle", "only those at this stage", choices=("active", "deprecated")),
)
KIND = Flag("--kind", "catalog_kind", "what to list", choices=("environment", "benchmark"))
ENV_INIT = (
    Flag("--resources-server", "resources_servers", "make a resources server of this name", "entrypoint"),
    Flag("--environment", "environment", "make an environment of this name"),
    Flag("--benchmark", "benchmark", "make a benchmark of this name"),
    Flag(
        "--profile",
        "profile",
        "which part of it runs in NeMo Gym",
        choices=("custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"),
    ),
    Flag("--reuse-verifier", "reuse_verifier", "score with this resources server instead of a new one"),
    Flag("--reward-range", "reward_range", "lowest and highest reward", "number", count=2),
    Flag("--higher-is-better", "higher_is_better", "more reward is better (the default)", "switch"),
    Flag("--lower-is-better", "higher_is_better", "less reward is better", "switch", constant="false"),
)

ENTRYPOINT = Flag("--resources-server", "resources_servers", "a resources server by its name", "entrypoint")
ENV_TEST = (
    ENTRYPOINT,
    Flag("--validate-data", "should_validate_data", "check the example data too", "switch"),
    Flag("--fail-on-mismatch", "fail_on_total_and_test_mismatch", "fail if a server has no tests", "switch"),
    Flag("--concurrency", "test_concurrency", "test suites at once; by default one a core", "number"),
    SEARCH_DIR,
    JSON,
)

ENV_PACKAGES = (
    ENTRYPOINT,
    Flag("--outdated", "outdated", "only packages of which there is a newer version", "switch"),
    Flag("--json", "format", "print JSON", "switch", constant="json"),
    SEARCH_DIR,
)

ENV_VALIDATE = (
    *SELECTORS,
    *MODEL,
    Flag("--kind", "catalog_kind", "what NAME is", choices=("environment", "benchmark", "resources-server")),
    Flag("--manifest", "manifest", "a manifest.yaml to check as well"),
    JSON,
)

DATASET_COLLATE = (
    CONFIG,
    BENCHMARK,
    ENVIRONMENT,
    RESOURCES_SERVER,
    MODEL_TYPE,
    SEARCH_DIR,
    ALLOW_UNKNOWN,
    Flag("--mode", "mode", "what to do with them", choices=("train_preparation", "example_validation")),
    Flag("--output-dir", "output_dirpath", "where the collated datasets and their metrics go", short="-o"),
    Flag("--download", "should_download", "fetch what is missing from its registry", "switch"),
    Flag("--data-source", "data_source", "which registry, of those a dataset is in", choices=("huggingface", "gitlab")),
    Flag(
        "--overwrite-conflicts",
        "overwrite_metrics_conflicts",
        "replace metrics files that the data no longer matches",
        "switch",
    ),
    JSON,
)
DATASET_RENDER = (
    Flag("--input", "input_jsonl_fpath", "the raw rows", short="-i"),
    Flag("--prompt-config", "prompt_config", "a prompt template, YAML"),
    Flag("--output", "output_jsonl_fpath", "where the rows with their prompts go", short="-o"),
    SEARCH_DIR,
)
STORAGE = Flag("--storage", "storage", "where it is kept; Hugging Face if not given", choices=("hf", "gitlab"))
DRY_RUN = Flag("--dry-run", "dry_run", "look at everything and change nothing", "switch")
YES = Flag("--yes", "yes", "delete without asking", "switch", "-y")
DATASET_MIGRATE = (
    Flag("--input", "input_jsonl_fpath", "the JSONL file to upload", short="-i"),
    Flag("--name", "dataset_name", "the name of the dataset"),
    Flag("--revision", "version", "GitLab: the version, x.x.x; Hugging Face: the branch", also=("revision",)),
    Flag("--split", "split", "what the rows are for; train is checked first", choices=("train", "validation", "test")),
    Flag("--create-pr", "create_pr", "Hugging Face: open a pull request instead of pushing", "switch"),
    Flag("--resource-config", "resource_config_path", "config of the resources server, for the domain in the name"),
    Flag("--organization", "hf_organization", "Hugging Face: who owns the dataset"),
    Flag("--collection-name", "hf_collection_name", "Hugging Face: title of the collection it is added to"),
    Flag("--collection-slug", "hf_collection_slug", "Hugging Face: what follows the title in the collection's URL"),
    Flag("--prefix", "hf_dataset_prefix", "Hugging Face: first part of the dataset's name"),
    Flag("--commit-message", "commit_message", "Hugging Face: message of the commit"),
    Flag("--commit-description", "commit_description", "Hugging Face: longer description of the commit"),
    YES,
    DRY_RUN,
    JSON,
)
DATASET_UPLOAD = (
    STORAGE,
    *DATASET_MIGRATE,
    Flag("--delete-from-gitlab", "delete_from_gitlab", "afterwards, delete the dataset from GitLab", "switch"),
)
DATASET_DOWNLOAD = (
    STORAGE,
    Flag("--repo-id", "repo_id", "Hugging Face: organization/name"),
    Flag("--name", "dataset_name", "GitLab: the name of the dataset"),
    Flag("--revision", "version", "GitLab: the version; Hugging Face: branch, tag or commit", also=("revision",)),
    Flag("--artifact", "artifact_fpath", "one raw file, by its path there"),
    Flag("--split", "split", "Hugging Face: only this split", choices=("train", "validation", "test")),
    Flag("--output", "output_fpath", "the file to write", short="-o"),
    Flag("--output-dir", "output_dirpath", "the folder to write to: all splits, or the one that was named"),
    JSON,
)
DATASET_RM = (Flag("--name", "dataset_name", "the name of the dataset; case matters"), YES, JSON)

VIEW_FILES = Positional("FILE", "jsonl_fpath", "JSONL files: rollouts, inputs, failures, datasets", many=True)
VIEW = (
    Flag("--host", "server_host", "where the page is served; 127.0.0.1 unless given"),
    Flag("--port", "server_port", "its port, 7860 unless given; the next free one if it is taken", "number"),
    Flag("--token", "require_token", "show the page only to those who have the printed address", "switch"),
    Flag("--export", "export_dirpath", "write a static HTML report into this folder instead"),
    Flag("--export-rollouts", "export_rollouts", "how many rollouts of each file the report holds", "number"),
    Flag("--browser", "open_browser", "open the page in a browser", "switch"),
    Flag("--no-browser", "open_browser", "open no browser (the default)", "switch", constant="false"),
)
