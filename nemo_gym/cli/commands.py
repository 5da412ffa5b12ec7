# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Parsing (`flags.py`), help (`help_pages.py`) and completion (`completion.py`) are all built from it. Commands are
imported when they run, which keeps `gym --help` instant. Flags that several commands take are in `common_flags.py`.
"""

from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym.cli.common_flags import (
    ALLOW_UNKNOWN,
    BENCHMARK,
    CONFIG,
    DATASET_MIGRATE,
    DISABLE_AGGREGATION,
    DOMAIN,
    ENTRYPOINT,
    EVAL_RUN,
    EXPORT_FORMATS,
    INPUTS,
    JSON,
    MANIFEST_FILTERS,
    MODEL,
    MODEL_TYPE,
    PASS_THRESHOLD,
    QUIET,
    ROLLOUTS,
    SEARCH_DIR,
    SELECTORS,
    SERVE_AS,
    SERVERS,
    STORAGE,
    TOKENIZER,
    YES,
)
from nemo_gym.cli.flags import Command, Flag, Positional

_NOT_IN_DEMO = ("--agent", "--input", "--prompt-config", "--shard", "--split", "--no-serve")


def _list(function: str, what: str, *flags: Flag) -> Command:
    name = Positional("NAME", "component_name", "show everything known about this one", optional=True)
    return Command(f"listing:{function}", what, "settings:ListConfig", (JSON, SEARCH_DIR, *flags), (name,))


def _component(what: str) -> tuple[Positional]:
    return (Positional("NAME", "component_name", what, optional=True),)


GROUPS: dict[str, dict[str, Command]] = {
    "list": {
        "benchmarks": _list("benchmarks", "benchmarks: domain, agent, repeats", *MANIFEST_FILTERS),
        "environments": _list(
            "environments",
            "environments: domain, description",
            *MANIFEST_FILTERS,
            Flag("--kind", "catalog_kind", "what to list", choices=("environment", "benchmark")),
            Flag("--from", "import_system", "another system to list, for `gym import`", choices=tuple(SYSTEMS)),
        ),
        "agents": _list("agents", "agents: composition, variants"),
        "models": _list("models", "model servers, by the names that --model-type takes"),
        "resources-servers": _list("resources_servers", "resources servers: domain, description", DOMAIN),
    },
    "dataset": {
        "collate": Command(
            "dataset.collate:collate",
            "check, measure and merge the datasets of a config",
            "dataset.collate:CollateConfig",
            (
                *SELECTORS,
                ALLOW_UNKNOWN,
                Flag("--mode", "mode", "what to do with the data", choices=("train_preparation", "example_validation")),
                Flag("--output-dir", "output_dirpath", "where the collated datasets and metrics go", short="-o"),
                Flag("--download", "should_download", "download missing datasets from their registry", "switch"),
                Flag(
                    "--data-source",
                    "data_source",
                    "the registry to use if a dataset is in several",
                    choices=("huggingface", "gitlab"),
                ),
                Flag(
                    "--overwrite-conflicts",
                    "overwrite_metrics_conflicts",
                    "replace metrics files that the data no longer matches",
                    "switch",
                ),
                JSON,
            ),
        ),
        "render": Command(
            "dataset.collate:fill_prompts",
            "apply a prompt template to raw rows",
            "dataset.collate:MaterializePromptsConfig",
            (
                Flag("--input", "input_jsonl_fpath", "the raw rows", short="-i"),
                Flag("--prompt-config", "prompt_config", "a prompt template, YAML"),
                Flag("--output", "output_jsonl_fpath", "where the rows with prompts go", short="-o"),
                SEARCH_DIR,
            ),
        ),
        "upload": Command(
            "dataset:upload",
            "upload a JSONL file to Hugging Face or GitLab",
            "dataset:DatasetUploadConfig",
            (
                STORAGE,
                *DATASET_MIGRATE,
                Flag("--delete-from-gitlab", "delete_from_gitlab", "delete it from GitLab afterwards", "switch"),
            ),
        ),
        "download": Command(
            "dataset:download",
            "download a dataset from Hugging Face or GitLab",
            "dataset:DatasetDownloadConfig",
            (
                STORAGE,
                Flag("--repo-id", "repo_id", "Hugging Face: organization/name"),
                Flag("--name", "dataset_name", "GitLab: the name of the dataset"),
                Flag(
                    "--revision",
                    "version",
                    "GitLab: the version; Hugging Face: branch, tag or commit",
                    also=("revision",),
                ),
                Flag("--artifact", "artifact_fpath", "one raw file, by its path in the dataset"),
                Flag("--split", "split", "Hugging Face: only this split", choices=("train", "validation", "test")),
                Flag("--output", "output_fpath", "the file to write", short="-o"),
                Flag("--output-dir", "output_dirpath", "the folder for all splits, or for the one named"),
                JSON,
            ),
        ),
        "migrate": Command(
            "dataset.hf:migrate",
            "upload a JSONL file to Hugging Face, verify the upload, then delete the dataset from GitLab",
            "dataset.hf:DatasetMigrateConfig",
            DATASET_MIGRATE,
        ),
        "rm": Command(
            "dataset.gitlab:rm",
            "delete a dataset from GitLab",
            "dataset.gitlab:DeleteFromGitlabConfig",
            (Flag("--name", "dataset_name", "the name of the dataset; case matters"), YES, JSON),
        ),
    },
    "env": {
        "start": Command("env:start", "start the servers of a config", "settings:RunConfig", (*SERVERS, SERVE_AS)),
        "validate": Command(
            "env.config:validate",
            "check a config without starting anything",
            "env.config:ValidateConfig",
            (
                *SERVERS,
                Flag("--kind", "catalog_kind", "NAME's kind", choices=("environment", "benchmark", "resources-server")),
                Flag("--manifest", "manifest", "a manifest.yaml to check as well"),
                JSON,
            ),
            _component("an environment, benchmark or resources server"),
        ),
        "prefetch": Command(
            "env:prefetch",
            "build the virtual environments of servers without starting them",
            "settings:RunConfig",
            (*SERVERS, JSON),
        ),
        "status": Command(
            "env.server_status:show_status",
            "show running servers and their health",
            "settings:StatusConfig",
            (JSON,),
        ),
        "resolve": Command(
            "env.config:resolve",
            "print the merged config, secrets hidden",
            "env.config:ResolveConfig",
            (
                *SERVERS,
                JSON,
                Flag("--explain", "explain", "show which file and line sets this key, and what that overrides"),
            ),
        ),
        "test": Command(
            "env.server_tests:test",
            "run the tests of one server or of all servers",
            "env.server_tests:TestConfig",
            (
                ENTRYPOINT,
                Flag("--all", "all_servers", "test every server, as without a name", "switch"),
                Flag("--validate-data", "should_validate_data", "check the example data too", "switch"),
                Flag("--fail-on-mismatch", "fail_on_total_and_test_mismatch", "fail if a server lacks tests", "switch"),
                Flag("--concurrency", "test_concurrency", "test suites at once; by default one per core", "number"),
                SEARCH_DIR,
                JSON,
            ),
            _component("a server: its name, or type/name"),
        ),
        "check": Command(
            "env.check:check_env",
            "start a resources server and check that it keeps the contract",
            "env.check:CheckConfig",
            (*SERVERS, JSON),
            _component("a resources server or an environment"),
        ),
        "packages": Command(
            "env.server_folders:packages",
            "list the packages in a server's virtual environment",
            "env.server_folders:PipListConfig",
            (
                ENTRYPOINT,
                Flag("--outdated", "outdated", "only packages with a newer version", "switch"),
                Flag("--json", "format", "print JSON", "switch", constant="json"),
                SEARCH_DIR,
            ),
        ),
        "init": Command(
            "env.init:init",
            "create a resources server, environment or benchmark",
            "env.init:InitConfig",
            (
                Flag("--resources-server", "resources_servers", "create a resources server of this name", "entrypoint"),
                Flag("--environment", "environment", "create an environment of this name"),
                Flag("--benchmark", "benchmark", "create a benchmark of this name"),
                Flag(
                    "--profile",
                    "profile",
                    "which part of it runs in NeMo Gym",
                    choices=(
                        "custom-gym-verifier",
                        "custom-gym-agent-loop",
                        "external-agent-loop",
                        "external-rollout-driver",
                    ),
                ),
                Flag("--reuse-verifier", "reuse_verifier", "score with this resources server instead of a new one"),
                Flag("--reward-range", "reward_range", "lowest and highest reward", "number", count=2),
                Flag("--higher-is-better", "higher_is_better", "more reward is better (the default)", "switch"),
                Flag("--lower-is-better", "higher_is_better", "less reward is better", "switch", constant="false"),
            ),
        ),
    },
    "eval": {
        "aggregate": Command(
            "eval.files:aggregate",
            "merge shards and compute their metrics",
            "eval.files:AggregateConfig",
            (
                CONFIG,
                Flag("--input-glob", "input_glob", "rollouts files: paths and wildcards, comma-separated", short="-i"),
                Flag("--output", "output_jsonl_fpath", "where the merged rollouts go", short="-o"),
                JSON,
            ),
        ),
        "compare": Command(
            "eval.files:compare",
            "compare runs task by task",
            "eval.files:CompareConfig",
            (PASS_THRESHOLD, JSON),
            (Positional("FILE", "rollouts_jsonl_fpaths", "rollouts files; the first is the baseline", many=True),),
        ),
        "prepare": Command(
            "prepare:prepare",
            "write a benchmark's data with its prepare script",
            "prepare:PrepareBenchmarkConfig",
            (
                CONFIG,
                BENCHMARK,
                SEARCH_DIR,
                Flag("--cached", "use_cached_prepared_benchmarks", "skip benchmarks already prepared", "switch"),
                Flag("--processes", "num_prepare_benchmark_processes", "how many scripts to run at once", "number"),
                JSON,
            ),
        ),
        "profile": Command(
            "eval.files:profile",
            "compute reward statistics for every task",
            "eval.files:ProfileConfig",
            (
                INPUTS,
                Flag("--rollouts", "rollouts_jsonl_fpath", "the rollouts file"),
                Flag("--allow-partial", "allow_partial_rollouts", "accept missing rollouts", "switch"),
                PASS_THRESHOLD,
                JSON,
            ),
        ),
        "reverify": Command(
            "eval.reverify:reverify",
            "score stored responses again",
            "nemo_gym.rollout_reverification:RolloutReverificationConfig",
            (
                *SERVERS,
                INPUTS,
                Flag("--rollouts", "rollouts_jsonl_fpath", "the stored rollouts"),
                Flag("--output", "output_jsonl_fpath", "where the new scores go", short="-o"),
                Flag("--concurrency", "num_samples_in_parallel", "verifications at once", "number"),
                Flag("--limit", "limit", "score only the first N rollouts", "number"),
                Flag("--force", "force", "also score with verifiers that may keep state", "switch"),
                Flag("--overwrite", "overwrite", "replace an existing output", "switch"),
                Flag("--resume", "resume_from_cache", "score only what is missing from the output", "switch"),
                DISABLE_AGGREGATION,
                Flag("--judge-failed-only", "judge_failed_only", "score only where a judge gave no verdict", "switch"),
                Flag("--append", "append", "add to an existing output", "switch"),
                QUIET,
                JSON,
            ),
        ),
        "run": Command(
            "eval.run:run",
            "run tasks and score them",
            "eval.settings:EvalRunConfig",
            (*SELECTORS, *MODEL, *EVAL_RUN, JSON),
        ),
        "tokens": Command(
            "export:tokens", "report token drift within rollouts", "export:TokensConfig", (TOKENIZER, JSON), ROLLOUTS
        ),
    },
    "dev": {
        "test": Command("dev:test", "run the core tests of NeMo Gym with coverage", "dev:DevTestConfig"),
        "reinstall": Command("dev:reinstall", "explain how to set up a clone", "dev:DevReinstallConfig"),
    },
}
GROUP_HELP = {
    "list": "show what you can evaluate",
    "dataset": "check, measure, collate and share datasets; apply prompts",
    "env": "run and inspect servers",
    "eval": "collect rollouts and inspect the results",
    "dev": "work on NeMo Gym itself",
}

VERSION = Command("general:show_version", "versions and system", "settings:VersionConfig", (JSON,))
COMMANDS: dict[str, Command] = {
    "bench": Command(
        "bench:bench",
        "benchmark this installation on this machine; all parts take about ten minutes",
        "bench:BenchConfig",
        (
            Flag("--output", "output", "the JSON file to write; by default one in results/bench", short="-o"),
            Flag("--picture", "picture", "the SVG file of growth curves; by default next to the JSON"),
            Flag("--compare", "compare", "JSON of an earlier run: report what changed beyond the spread"),
            Flag("--repeat", "repeat", "run every part N times; report medians and spread", "number"),
            Flag("--strict", "strict", "exit with 1 if a bound is exceeded, or a figure got worse", "switch"),
            JSON,
        ),
        (
            Positional(
                "PART",
                "parts",
                "what to measure, such as cli or in_flight; by default all but the slow parts; `list` lists them",
                many=True,
                optional=True,
            ),
        ),
    ),
    "bench plan": Command(
        "bench_plan:plan",
        "forecast a run: its speed, bottleneck and resources, and whether more nodes help",
        "bench_plan:BenchPlanConfig",
        (
            Flag("--latency", "latency", "time of a model call: 2s, lognormal:median=2s,sigma=0.5, fixed:300ms"),
            Flag("--tokens", "tokens", "tokens generated per model call: a number or a distribution"),
            Flag("--turns", "turns", "model calls per rollout: a number or a distribution"),
            Flag("--from-rollouts", "from_rollouts", "a rollouts file to take latency, tokens and turns from"),
            Flag("--tool-cpu", "tool_cpu", "CPU time per tool call"),
            Flag("--verify-cpu", "verify_cpu", "CPU time per verification, in a process next to the worker"),
            Flag("--verify-like", "verify_like", "an environment whose verifications `gym bench` has measured"),
            Flag("--rollouts", "rollouts", "number of rollouts in the run", "number"),
            Flag("--concurrency", "concurrency", "rollouts in flight; by default as many as help", "number"),
            Flag("--nodes", "nodes", "machines, up to 1,000", "number"),
            Flag("--workers", "workers", "worker processes per node", "number"),
            Flag("--cores", "cores", "cores per node; by default those of this machine", "number"),
            Flag("--memory", "memory", "memory per node in GB", "number"),
            Flag("--endpoint-in-flight", "endpoint_in_flight", "requests the endpoint handles at once", "number"),
            Flag("--endpoint-rps", "endpoint_rps", "requests per second the endpoint handles", "number"),
            Flag("--endpoint-tps", "endpoint_tps", "tokens per second the endpoint generates", "number"),
            Flag("--constants", "constants", "JSON of `gym bench constants`; by default the packaged ones"),
            Flag("--check", "check", "make three real runs and report how close the forecasts are", "switch"),
            JSON,
        ),
    ),
    "demo": Command(
        "demo:demo",
        "try an evaluation: a small environment and a model that needs no key",
        "eval.settings:EvalRunConfig",
        (
            CONFIG,
            MODEL_TYPE,
            SEARCH_DIR,
            *MODEL,
            Flag("--seed", "seed", "seed of the local model, or of the training", "number"),
            Flag("--train", "train", "watch a small model learn instead, on this machine's CPU", "switch"),
            Flag("--steps", "training_steps", "with --train: how many steps to train", "number"),
            *(flag for flag in EVAL_RUN if flag.name not in _NOT_IN_DEMO),
            JSON,
        ),
    ),
    "export": Command(
        "export:export",
        "write rollouts in a trainer's format: trl, verl, nemo-rl, sft and more",
        "export:ExportConfig",
        (
            Flag("--to", "export_format", "the format", choices=EXPORT_FORMATS),
            Flag("--output", "output", "the file to write; for verl, `.parquet` writes parquet", short="-o"),
            Flag("--overwrite", "overwrite", "replace an existing output", "switch"),
            Flag("--min-reward", "min_reward", "minimum reward; dpo: of the chosen rollout", "number"),
            Flag("--keep-groups", "keep_groups", "mixed: only tasks whose rewards differ", choices=("all", "mixed")),
            Flag("--min-pass-rate", "min_pass_rate", "only tasks with at least this share of passes", "number"),
            Flag("--max-pass-rate", "max_pass_rate", "only tasks with at most this share of passes", "number"),
            PASS_THRESHOLD,
            Flag("--margin", "margin", "dpo: minimum reward difference of a pair", "number"),
            TOKENIZER,
            JSON,
        ),
        ROLLOUTS,
    ),
    "import": Command(
        "import_environments:import_environment",
        "import an environment from another system: a config and a dataset for `gym eval run`",
        "import_environments:ImportConfig",
        (
            Flag("--rows", "rows", "rows in the dataset; by default 100", "number"),
            Flag("--output-dir", "output_dirpath", "the folder for both files; by default imported/", short="-o"),
            Flag("--seed", "seed", "seed for the rows", "number"),
            Flag("--option", "options", "key=value, a setting of the environment; may be repeated", many=True),
            Flag("--requirement", "requirements", "a package it needs, or its path; may be repeated", many=True),
            Flag("--overwrite", "overwrite", "replace existing files that differ", "switch"),
            SEARCH_DIR,
            JSON,
        ),
        (Positional("SYSTEM:ID", "environment", f"SYSTEM is {', '.join(SYSTEMS)}"),),
    ),
    "search": Command(
        "listing:search",
        "find benchmarks and environments by name, dataset, domain, agent or description",
        "settings:SearchConfig",
        (JSON, SEARCH_DIR),
        (
            Positional("TYPE", "catalog_type", "what to search", optional=True, choices=tuple(GROUPS["list"])),
            Positional("QUERY", "query", "part of a word, or a similar spelling"),
        ),
    ),
    "view": Command(
        "view:view",
        "look at rollouts, failures or datasets in a browser",
        "view:JsonlDatasetViewerConfig",
        (
            Flag("--host", "server_host", "host to serve on; by default 127.0.0.1"),
            Flag("--port", "server_port", "port; by default 7860, or the next free one if it is taken", "number"),
            Flag("--token", "require_token", "serve the page only to those who have the printed URL", "switch"),
            Flag("--export", "export_dirpath", "write a static HTML report into this folder instead"),
            Flag("--export-rollouts", "export_rollouts", "rollouts per file in the report", "number"),
            Flag("--browser", "open_browser", "open the page in a browser", "switch"),
            Flag("--no-browser", "open_browser", "do not open a browser (the default)", "switch", constant="false"),
        ),
        (Positional("FILE", "jsonl_fpath", "JSONL files: rollouts, inputs, failures, datasets", many=True),),
    ),
}
"""Commands that belong to no group: `gym search`."""
