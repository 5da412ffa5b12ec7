# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Parsing (`flags.py`), help (`help_pages.py`) and completion (`completion.py`) are all built from it. A setting declares
its flag where it is declared itself, in the settings class of the command (`nemo_gym._config.command_flags`); here are
only the flags that choose files and folders instead of setting a key. Commands are imported when they run, which keeps
`gym --help` instant.
"""

from nemo_gym._authoring.foreign_systems import SYSTEMS
from nemo_gym._config.command_flags import Flag
from nemo_gym.cli.flags import REST, Command, Positional

CONFIG = Flag("--config", "config_paths", "A YAML config file; may be repeated, later ones win.", "config")
BENCHMARK = Flag("--benchmark", "benchmarks", "A benchmark, by name.", "collection")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "A model server, by name.", "component")
SEARCH_DIR = Flag("--search-dir", "", "Look for servers and configs here first; may be repeated.", "search_dir")
SELECTORS = (
    CONFIG,
    BENCHMARK,
    Flag("--environment", "environments", "An environment, by name.", "collection"),
    Flag("--resources-server", "resources_servers", "A resources server, by name.", "component"),
    MODEL_TYPE,
    SEARCH_DIR,
)
ENTRYPOINT = Flag("--resources-server", "resources_servers", "A resources server, by name.", "entrypoint")
MODEL = ("--model", "--model-url", "--model-api-key", "--allow-unknown-keys")
SERVERS = (*SELECTORS, *MODEL)
MANIFEST_FILTERS = ("--domain", "--modality", "--licensing", "--status", "--lifecycle")
# The flags of `gym eval run` that are used most; the others follow in the order of its settings.
EVAL_RUN = (
    *("--no-serve", "--resume", "--agent", "--input", "--output", "--limit", "--num-repeats", "--shard"),
    *("--prompt-config", "--concurrency", "--workers", "--on", "--split"),
    REST,
)
_NOT_IN_DEMO = ("--agent", "--input", "--prompt-config", "--shard", "--split", "--no-serve")
ROLLOUTS = (Positional("ROLLOUTS", "rollouts_jsonl_fpaths", "Rollouts files: paths or quoted wildcards.", many=True),)


def _list(function: str, what: str, *flags: str) -> Command:
    name = Positional("NAME", "component_name", "Show everything known about this one.", optional=True)
    return Command(f"listing:{function}", what, "settings:ListConfig", ("--json", SEARCH_DIR, *flags), (name,))


def _component(what: str) -> tuple[Positional]:
    return (Positional("NAME", "component_name", what, optional=True),)


GROUPS: dict[str, dict[str, Command]] = {
    "list": {
        "benchmarks": _list("benchmarks", "benchmarks: domain, agent, repeats", *MANIFEST_FILTERS),
        "environments": _list(
            "environments", "environments: domain, description", *MANIFEST_FILTERS, "--kind", "--from"
        ),
        "agents": _list("agents", "agents: composition, variants"),
        "models": _list("models", "model servers, by the names that --model-type takes"),
        "resources-servers": _list("resources_servers", "resources servers: domain, description", "--domain"),
    },
    "dataset": {
        "collate": Command(
            "dataset.collate:collate",
            "check, measure and merge the datasets of a config",
            "dataset.collate:CollateConfig",
            (*SELECTORS, "--allow-unknown-keys", "--mode", REST),
        ),
        "render": Command(
            "dataset.collate:fill_prompts",
            "apply a prompt template to raw rows",
            "dataset.collate:MaterializePromptsConfig",
            (REST, SEARCH_DIR),
        ),
        "upload": Command(
            "dataset:upload",
            "upload a JSONL file to Hugging Face or GitLab",
            "dataset:DatasetUploadConfig",
            ("--storage", REST),
        ),
        "download": Command(
            "dataset:download",
            "download a dataset from Hugging Face or GitLab",
            "dataset:DatasetDownloadConfig",
        ),
        "migrate": Command(
            "dataset.hf:migrate",
            "upload a JSONL file to Hugging Face, verify the upload, then delete the dataset from GitLab",
            "dataset:DatasetMigrateConfig",
        ),
        "rm": Command(
            "dataset.gitlab:rm",
            "delete a dataset from GitLab",
            "dataset.gitlab:DeleteFromGitlabConfig",
            ("--name", "--yes", REST),
        ),
    },
    "env": {
        "start": Command("env:start", "start the servers of a config", "settings:RunConfig", (*SERVERS, REST)),
        "validate": Command(
            "env.config_reports:validate",
            "check a config without starting anything",
            "env.config_reports:ValidateConfig",
            (*SERVERS, REST),
            _component("An environment, benchmark or resources server."),
        ),
        "prefetch": Command(
            "env:prefetch",
            "build the virtual environments of servers without starting them",
            "settings:PrefetchConfig",
            (*SERVERS, "--json"),
        ),
        "status": Command(
            "env.server_status:show_status", "show running servers and their health", "settings:StatusConfig"
        ),
        "resolve": Command(
            "env.config_reports:resolve",
            "print the merged config, secrets hidden",
            "env.config_reports:ResolveConfig",
            (*SERVERS, "--json", REST),
        ),
        "test": Command(
            "env.server_tests:test",
            "run the tests of one server or of all servers",
            "env.server_tests:TestConfig",
            (ENTRYPOINT, "--all", "--validate-data", REST, SEARCH_DIR, "--json"),
            _component("A server: its name, or type/name."),
        ),
        "check": Command(
            "env.check:check_env",
            "start a resources server and check that it keeps the contract",
            "env.check:CheckConfig",
            (*SERVERS, REST),
            _component("A resources server or an environment."),
        ),
        "packages": Command(
            "env.server_folders:packages",
            "list the packages in a server's virtual environment",
            "env.server_folders:PipListConfig",
            (ENTRYPOINT, "--outdated", REST, SEARCH_DIR),
        ),
        "init": Command("env.init:init", "create a server, environment or benchmark", "env.init:InitConfig"),
    },
    "eval": {
        "aggregate": Command(
            "eval.files:aggregate",
            "merge shards and compute their metrics",
            "eval.files:AggregateConfig",
            (CONFIG, REST),
        ),
        "compare": Command(
            "eval.files:compare",
            "compare runs task by task",
            "eval.files:CompareConfig",
            positionals=(
                Positional("FILE", "rollouts_jsonl_fpaths", "Rollouts files; the first is the baseline.", many=True),
            ),
        ),
        "prepare": Command(
            "prepare:prepare",
            "write a benchmark's data with its prepare script",
            "prepare:PrepareBenchmarkConfig",
            (CONFIG, BENCHMARK, SEARCH_DIR, REST),
        ),
        "profile": Command(
            "eval.files:profile",
            "compute reward statistics for every task",
            "eval.files:ProfileConfig",
            ("--inputs", REST),
        ),
        "reverify": Command(
            "eval.reverify:reverify",
            "score stored responses again",
            "nemo_gym.rollout_reverification:RolloutReverificationConfig",
            (*SERVERS, REST),
        ),
        "run": Command(
            "eval.run:run", "run tasks and score them", "eval.run_settings:EvalRunConfig", (*SERVERS, *EVAL_RUN)
        ),
        "tokens": Command(
            "export:tokens", "report token drift within rollouts", "export:TokensConfig", positionals=ROLLOUTS
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

VERSION = Command("general:show_version", "versions and system", "settings:VersionConfig")
COMMANDS: dict[str, Command] = {
    "bench": Command(
        "bench:bench",
        "benchmark this installation on this machine; all parts take about ten minutes",
        "bench:BenchConfig",
        (REST, "--json"),
        (
            Positional(
                "PART",
                "parts",
                "What to measure, such as cli or in_flight; by default all but the slow parts; `list` lists them.",
                many=True,
                optional=True,
            ),
        ),
    ),
    "bench plan": Command(
        "bench_plan:plan",
        "forecast a run: its speed, bottleneck and resources, and whether more nodes help",
        "bench_plan:BenchPlanConfig",
    ),
    "demo": Command(
        "demo:demo",
        "try an evaluation: a small environment and a model that needs no key",
        "demo:DemoConfig",
        (CONFIG, MODEL_TYPE, SEARCH_DIR, *MODEL, "--seed", "--train", "--steps", *EVAL_RUN),
        leaves_out=_NOT_IN_DEMO,
    ),
    "export": Command(
        "export:export",
        "write rollouts in a trainer's format: trl, verl, nemo-rl, sft and more",
        "export:ExportConfig",
        (REST, "--tokenizer", "--json"),
        ROLLOUTS,
    ),
    "import": Command(
        "import_environments:import_environment",
        "import an environment from another system: a config and a dataset for `gym eval run`",
        "import_environments:ImportConfig",
        ("--rows", "--output-dir", REST, SEARCH_DIR, "--json"),
        (Positional("SYSTEM:ID", "environment", f"SYSTEM is one of {', '.join(SYSTEMS)}."),),
    ),
    "search": Command(
        "listing:search",
        "find benchmarks and environments by name, dataset, domain, agent or description",
        "settings:SearchConfig",
        ("--json", SEARCH_DIR),
        (
            Positional("TYPE", "catalog_type", "What to search.", optional=True, choices=tuple(GROUPS["list"])),
            Positional("QUERY", "query", "Part of a word, or a similar spelling."),
        ),
    ),
    "view": Command(
        "view:view",
        "look at rollouts, failures or datasets in a browser",
        "view:JsonlDatasetViewerConfig",
        ("--host", "--port", "--token", REST),
        (Positional("FILE", "jsonl_fpath", "JSONL files: rollouts, inputs, failures, datasets.", many=True),),
    ),
}
"""Commands that belong to no group: `gym search`."""


def list_commands() -> dict[str, Command]:
    """Return every command by its name: `eval run`, `search`."""
    grouped = {f"{group} {name}": command for group, commands in GROUPS.items() for name, command in commands.items()}
    return {**grouped, **COMMANDS}
