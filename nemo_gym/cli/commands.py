# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Flags and bare words become override tokens (`--model x` is `++policy_model_name='x'`), so that a command sees one
language only. Commands are imported when they run, which keeps `gym --help` instant. What a flag or a bare word can be
is described in `command_types.py`.
"""

from nemo_gym.cli.command_types import Command as Command
from nemo_gym.cli.command_types import Flag as Flag
from nemo_gym.cli.command_types import Positional as Positional

CONFIG = Flag("--config", "config_paths", "a YAML config file; may be repeated, later ones win", "config")
BENCHMARK = Flag("--benchmark", "benchmarks", "a benchmark by its name", "collection")
ENVIRONMENT = Flag("--environment", "environments", "an environment by its name", "collection")
RESOURCES_SERVER = Flag("--resources-server", "resources_servers", "a resources server by its name", "component")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "a model server by its name", "component")
SEARCH_DIR = Flag("--search-dir", "", "look for servers and configs here first; may be repeated", "search_dir")
SELECTORS = (CONFIG, BENCHMARK, ENVIRONMENT, RESOURCES_SERVER, MODEL_TYPE, SEARCH_DIR)
MODEL = (
    Flag("--model", "policy_model_name", "the name of the model", short="-m"),
    Flag("--model-url", "policy_base_url", "the base URL of the model's endpoint"),
    Flag("--model-api-key", "policy_api_key", "the API key of the model's endpoint"),
)
EXPLAIN = Flag("--explain", "explain", "who gives this key its value, file and line, and what that overrides")
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
    Flag(
        "--split",
        "split",
        "which datasets of the config to play",
        choices=("train", "validation", "example", "benchmark"),
    ),
    Flag("--temperature", "responses_create_params.temperature", "sampling temperature", "number"),
    Flag("--top-p", "responses_create_params.top_p", "nucleus sampling", "number"),
    Flag("--max-output-tokens", "responses_create_params.max_output_tokens", "tokens per reply", "number"),
    Flag("--disable-aggregation", "disable_aggregation", "write rollouts only", "switch"),
    Flag("--timeout", "rollout_timeout_seconds", "deadline of one rollout, in seconds", "number"),
    Flag("--allow-failures", "allow_failures", "how many rollouts may fail: a number or a percentage"),
    Flag("--max-failure-rate", "max_failure_rate", "stop early at this share of failures, such as 0.5", "number"),
    Flag("--quiet", "quiet", "show no progress", "switch"),
)

DEMO = (
    Flag("--seed", "seed", "another seed, other answers", "number"),
    *(flag for flag in EVAL_RUN if flag.name not in ("--agent", "--input", "--prompt-config", "--split", "--no-serve")),
)

AGGREGATE = (
    CONFIG,
    Flag("--input-glob", "input_glob", "rollouts files: paths and wildcards, separated by commas", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the merged rollouts go", short="-o"),
    JSON,
)
COMPARE_FILES = Positional("FILE", "rollouts_jsonl_fpaths", "rollouts files, the first one the baseline", many=True)
COMPARE = (Flag("--pass-threshold", "pass_threshold", "reward from which a rollout has passed", "number"), JSON)
PREPARE = (
    Flag("--cached", "use_cached_prepared_benchmarks", "leave out what is there already", "switch"),
    Flag("--processes", "num_prepare_benchmark_processes", "scripts at once", "number"),
)
PROFILE = (
    Flag("--inputs", "materialized_inputs_jsonl_fpath", "what was planned; by default beside the rollouts"),
    Flag("--rollouts", "rollouts_jsonl_fpath", "the rollouts file"),
    Flag("--allow-partial", "allow_partial_rollouts", "some planned rollouts may be missing", "switch"),
    Flag("--pass-threshold", "pass_threshold", "reward from which a rollout has passed", "number"),
    JSON,
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
    Flag("--quiet", "quiet", "show no progress", "switch"),
    JSON,
)

CATALOG_TYPES = ("benchmarks", "environments", "agents", "models", "resources-servers")
NAME = Positional("NAME", "component_name", "one of them, to see all there is to know of it", optional=True)
DOMAIN = Flag("--domain", "domain", "only those of this domain, such as math")
MANIFEST_FILTERS = (
    DOMAIN,
    Flag("--modality", "modality", "only those of this modality"),
    Flag("--licensing", "licensing", "only those under this licence"),
    Flag("--status", "status", "only those of this status", choices=("experimental", "no-manifest")),
    Flag("--lifecycle", "lifecycle", "only those", choices=("active", "deprecated")),
)
KIND = Flag("--kind", "catalog_kind", "what to list", choices=("environment", "benchmark"))


def _list(function: str, what: str, *flags: Flag) -> Command:
    settings = "nemo_gym.cli.parameters:ListConfig"
    return Command(f"nemo_gym.cli.listing:{function}", what, (JSON, SEARCH_DIR, *flags), (NAME,), settings)


ENV_INIT = (
    Flag("--resources-server", "resources_servers", "make a resources server of this name", "entrypoint"),
    Flag("--environment", "environment", "make an environment of this name"),
    Flag("--benchmark", "benchmark", "make a benchmark of this name"),
    Flag(
        "--profile",
        "profile",
        "what of it runs in NeMo Gym",
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

GROUPS: dict[str, dict[str, Command]] = {
    "list": {
        "benchmarks": _list("benchmarks", "benchmarks: domain, agent, repeats", *MANIFEST_FILTERS),
        "environments": _list("environments", "environments: domain, description", *MANIFEST_FILTERS, KIND),
        "agents": _list("agents", "agents: composition, variants"),
        "models": _list("models", "model servers, by the names that --model-type takes"),
        "resources-servers": _list("resources_servers", "resources servers: domain, description", DOMAIN),
    },
    "dataset": {
        "collate": Command(
            "nemo_gym.cli.dataset_collate:collate",
            "check, measure and put together the datasets of a config",
            DATASET_COLLATE,
            settings="nemo_gym.cli.dataset_collate:CollateConfig",
        ),
        "render": Command(
            "nemo_gym.cli.dataset_render:render",
            "fill a prompt into raw rows",
            DATASET_RENDER,
            settings="nemo_gym.cli.dataset_render:MaterializePromptsConfig",
        ),
    },
    "env": {
        "start": Command(
            "nemo_gym.cli.env:start",
            "start the servers of a config",
            (*SELECTORS, *MODEL),
            settings="nemo_gym.cli.parameters:RunConfig",
        ),
        "validate": Command(
            "nemo_gym.cli.env_config:validate",
            "check a config without starting anything",
            ENV_VALIDATE,
            (Positional("NAME", "component_name", "an environment, benchmark or resources server", optional=True),),
            settings="nemo_gym.cli.env_config:ValidateConfig",
        ),
        "prefetch": Command(
            "nemo_gym.cli.env:prefetch",
            "build the environments of servers without starting them",
            (*SELECTORS, *MODEL, JSON),
            settings="nemo_gym.cli.parameters:RunConfig",
        ),
        "status": Command(
            "nemo_gym.cli.env:status",
            "show the servers that run and their health",
            (JSON,),
            settings="nemo_gym.cli.parameters:StatusConfig",
        ),
        "resolve": Command(
            "nemo_gym.cli.env_config:resolve",
            "print the merged config, secrets hidden",
            (*SELECTORS, *MODEL, JSON, EXPLAIN),
            settings="nemo_gym.cli.env_config:ResolveConfig",
        ),
        "test": Command(
            "nemo_gym.cli.env_test:test",
            "run the test suite of a server, or of all",
            ENV_TEST,
            (Positional("NAME", "component_name", "a server: its name, or type/name", optional=True),),
            settings="nemo_gym.cli.env_test:TestConfig",
        ),
        "check": Command(
            "nemo_gym.cli.env_check:check_env",
            "start a resources server and see whether it keeps to the contract",
            (*SELECTORS, *MODEL, JSON),
            (Positional("NAME", "component_name", "a resources server or an environment", optional=True),),
            settings="nemo_gym.cli.env_check:CheckConfig",
        ),
        "packages": Command(
            "nemo_gym.cli.env_packages:packages",
            "list the packages of a server's environment",
            ENV_PACKAGES,
            settings="nemo_gym.cli.env_packages:PackagesConfig",
        ),
        "init": Command(
            "nemo_gym.cli.env_init:init",
            "make a new resources server, environment or benchmark",
            ENV_INIT,
            settings="nemo_gym.cli.env_init:InitConfig",
        ),
    },
    "eval": {
        "aggregate": Command(
            "nemo_gym.cli.eval_files:aggregate",
            "merge shards and compute their metrics",
            AGGREGATE,
            settings="nemo_gym.cli.eval_files:AggregateConfig",
        ),
        "compare": Command(
            "nemo_gym.cli.eval_files:compare",
            "compare runs task by task",
            COMPARE,
            (COMPARE_FILES,),
            settings="nemo_gym.cli.eval_files:CompareConfig",
        ),
        "prepare": Command(
            "nemo_gym.cli.prepare:prepare",
            "write the data of a benchmark, by its own script",
            (CONFIG, BENCHMARK, SEARCH_DIR, *PREPARE, JSON),
            settings="nemo_gym.benchmarks:PrepareBenchmarkConfig",
        ),
        "profile": Command(
            "nemo_gym.cli.eval_files:profile",
            "statistics of the rewards of every task",
            PROFILE,
            settings="nemo_gym.cli.eval_files:ProfileConfig",
        ),
        "reverify": Command(
            "nemo_gym.cli.reverify:reverify",
            "score stored responses again",
            (*SELECTORS, *MODEL, *REVERIFY),
            settings="nemo_gym.rollout_reverification:RolloutReverificationConfig",
        ),
        "run": Command(
            "nemo_gym.cli.eval:run",
            "play tasks and score them",
            (*SELECTORS, *MODEL, *EVAL_RUN, JSON),
            settings="nemo_gym.cli.eval_settings:EvalRunConfig",
        ),
    },
    "dev": {
        "test": Command(
            "nemo_gym.cli.dev:test",
            "run the core tests of NeMo Gym with coverage",
            settings="nemo_gym.cli.dev:DevTestConfig",
        ),
        "reinstall": Command("nemo_gym.cli.dev:reinstall", "say how a clone is set up"),
    },
}

VERSION = Command(
    "nemo_gym.cli.version:version", "versions and system", (JSON,), settings="nemo_gym.cli.parameters:VersionConfig"
)

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "nemo_gym.cli.demo:demo",
        "see an evaluation work: a small environment and a model that needs no key",
        (CONFIG, MODEL_TYPE, SEARCH_DIR, *MODEL, *DEMO, JSON),
        settings="nemo_gym.cli.eval_settings:EvalRunConfig",
    ),
    "search": Command(
        "nemo_gym.cli.listing:search",
        "find benchmarks and environments by name, dataset, domain, agent or description",
        (JSON, SEARCH_DIR),
        (
            Positional("TYPE", "catalog_type", "what to search", optional=True, choices=CATALOG_TYPES),
            Positional("QUERY", "query", "part of a word, or a word spelt alike"),
        ),
        settings="nemo_gym.cli.parameters:SearchConfig",
    ),
}
"""Commands that belong to no group: `gym search`."""

GROUP_HELP = {
    "list": "what there is to evaluate",
    "dataset": "prepare rows: check, measure, collate, fill prompts",
    "env": "run and inspect servers",
    "eval": "collect rollouts and see what they came to",
    "dev": "work on NeMo Gym itself",
}

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
