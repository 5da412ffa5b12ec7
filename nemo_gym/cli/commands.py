# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Flags and bare words become override tokens (`--model x` is `++policy_model_name='x'`), so that a command sees one
language only. Commands are imported when they run, which keeps `gym --help` instant. What a flag or a bare word can be
is described in `command_flags.py`.
"""

from nemo_gym.cli.command_flags import (
    AGGREGATE,
    BENCHMARK,
    CATALOG_TYPES,
    COMPARE,
    COMPARE_FILES,
    CONFIG,
    DATASET_COLLATE,
    DATASET_DOWNLOAD,
    DATASET_MIGRATE,
    DATASET_RENDER,
    DATASET_RM,
    DATASET_UPLOAD,
    DEMO,
    DOMAIN,
    ENV_INIT,
    ENV_PACKAGES,
    ENV_TEST,
    ENV_VALIDATE,
    EVAL_RUN,
    EXPLAIN,
    JSON,
    KIND,
    MANIFEST_FILTERS,
    MODEL,
    MODEL_TYPE,
    NAME,
    PREPARE,
    PROFILE,
    REVERIFY,
    SEARCH_DIR,
    SELECTORS,
    VIEW,
    VIEW_FILES,
)
from nemo_gym.cli.command_flags import Command as Command
from nemo_gym.cli.command_flags import Flag as Flag
from nemo_gym.cli.command_flags import Positional as Positional


def _list(function: str, what: str, *flags: Flag) -> Command:
    settings = "settings:ListConfig"
    return Command(f"listing:{function}", what, (JSON, SEARCH_DIR, *flags), (NAME,), settings)


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
            "dataset.collate:collate",
            "check, measure and put together the datasets of a config",
            DATASET_COLLATE,
            settings="dataset.collate:CollateConfig",
        ),
        "render": Command(
            "dataset.collate:fill_prompts",
            "fill a prompt into raw rows",
            DATASET_RENDER,
            settings="dataset.collate:MaterializePromptsConfig",
        ),
        "upload": Command(
            "dataset:upload",
            "put a JSONL file on Hugging Face, or into GitLab",
            DATASET_UPLOAD,
            settings="dataset:DatasetUploadConfig",
        ),
        "download": Command(
            "dataset:download",
            "get a dataset from Hugging Face, or from GitLab",
            DATASET_DOWNLOAD,
            settings="dataset:DatasetDownloadConfig",
        ),
        "migrate": Command(
            "dataset.hf:migrate",
            "put a JSONL file on Hugging Face, check it there, then delete the dataset from GitLab",
            DATASET_MIGRATE,
            settings="dataset.hf:DatasetMigrateConfig",
        ),
        "rm": Command(
            "dataset.gitlab:rm",
            "delete a dataset from GitLab",
            DATASET_RM,
            settings="dataset.gitlab:DeleteFromGitlabConfig",
        ),
    },
    "env": {
        "start": Command(
            "env:start", "start the servers of a config", (*SELECTORS, *MODEL), settings="settings:RunConfig"
        ),
        "validate": Command(
            "env.config:validate",
            "check a config without starting anything",
            ENV_VALIDATE,
            (Positional("NAME", "component_name", "an environment, benchmark or resources server", optional=True),),
            settings="env.config:ValidateConfig",
        ),
        "prefetch": Command(
            "env:prefetch",
            "build the environments of servers without starting them",
            (*SELECTORS, *MODEL, JSON),
            settings="settings:RunConfig",
        ),
        "status": Command(
            "env.server_status:show_status",
            "show the servers that run and their health",
            (JSON,),
            settings="settings:StatusConfig",
        ),
        "resolve": Command(
            "env.config:resolve",
            "print the merged config, secrets hidden",
            (*SELECTORS, *MODEL, JSON, EXPLAIN),
            settings="env.config:ResolveConfig",
        ),
        "test": Command(
            "env.server_tests:test",
            "run the test suite of a server, or of all",
            ENV_TEST,
            (Positional("NAME", "component_name", "a server: its name, or type/name", optional=True),),
            settings="env.server_tests:TestConfig",
        ),
        "check": Command(
            "env.check:check_env",
            "start a resources server and see whether it keeps to the contract",
            (*SELECTORS, *MODEL, JSON),
            (Positional("NAME", "component_name", "a resources server or an environment", optional=True),),
            settings="env.check:CheckConfig",
        ),
        "packages": Command(
            "env.server_folders:packages",
            "list the packages of a server's environment",
            ENV_PACKAGES,
            settings="env.server_folders:PipListConfig",
        ),
        "init": Command(
            "env.init:init",
            "make a new resources server, environment or benchmark",
            ENV_INIT,
            settings="env.init:InitConfig",
        ),
    },
    "eval": {
        "aggregate": Command(
            "eval.files:aggregate",
            "merge shards and compute their metrics",
            AGGREGATE,
            settings="eval.files:AggregateConfig",
        ),
        "compare": Command(
            "eval.files:compare",
            "compare runs task by task",
            COMPARE,
            (COMPARE_FILES,),
            settings="eval.files:CompareConfig",
        ),
        "prepare": Command(
            "prepare:prepare",
            "write the data of a benchmark, by its own script",
            (CONFIG, BENCHMARK, SEARCH_DIR, *PREPARE, JSON),
            settings="prepare:PrepareBenchmarkConfig",
        ),
        "profile": Command(
            "eval.files:profile",
            "statistics of the rewards of every task",
            PROFILE,
            settings="eval.files:ProfileConfig",
        ),
        "reverify": Command(
            "eval.reverify:reverify",
            "score stored responses again",
            (*SELECTORS, *MODEL, *REVERIFY),
            settings="nemo_gym.rollout_reverification:RolloutReverificationConfig",
        ),
        "run": Command(
            "eval.run:run",
            "play tasks and score them",
            (*SELECTORS, *MODEL, *EVAL_RUN, JSON),
            settings="eval.settings:EvalRunConfig",
        ),
    },
    "dev": {
        "test": Command("dev:test", "run the core tests of NeMo Gym with coverage", settings="dev:DevTestConfig"),
        "reinstall": Command("dev:reinstall", "say how a clone is set up"),
    },
}

VERSION = Command("general:show_version", "versions and system", (JSON,), settings="settings:VersionConfig")

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "demo:demo",
        "see an evaluation work: a small environment and a model that needs no key",
        (CONFIG, MODEL_TYPE, SEARCH_DIR, *MODEL, *DEMO, JSON),
        settings="eval.settings:EvalRunConfig",
    ),
    "search": Command(
        "listing:search",
        "find benchmarks and environments by name, dataset, domain, agent or description",
        (JSON, SEARCH_DIR),
        (
            Positional("TYPE", "catalog_type", "what to search", optional=True, choices=CATALOG_TYPES),
            Positional("QUERY", "query", "part of a word, or a word spelt alike"),
        ),
        settings="settings:SearchConfig",
    ),
    "view": Command(
        "view:view",
        "look at rollouts, failures or datasets in a browser",
        VIEW,
        (VIEW_FILES,),
        settings="view:JsonlDatasetViewerConfig",
    ),
}
"""Commands that belong to no group: `gym search`."""

GROUP_HELP = {
    "list": "what there is to evaluate",
    "dataset": "prepare rows: check, measure, collate, fill prompts; share them",
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
