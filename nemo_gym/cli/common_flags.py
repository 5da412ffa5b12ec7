# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands share, and lists of flags that are too long for the table of commands."""

from nemo_gym.cli.flags import Flag, Positional

CONFIG = Flag("--config", "config_paths", "a YAML config file; may be repeated, later ones win", "config")
BENCHMARK = Flag("--benchmark", "benchmarks", "a benchmark, by name", "collection")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "a model server, by name", "component")
SEARCH_DIR = Flag("--search-dir", "", "look for servers and configs here first; may be repeated", "search_dir")
SELECTORS = (
    CONFIG,
    BENCHMARK,
    Flag("--environment", "environments", "an environment, by name", "collection"),
    Flag("--resources-server", "resources_servers", "a resources server, by name", "component"),
    MODEL_TYPE,
    SEARCH_DIR,
)
ALLOW_UNKNOWN = Flag("--allow-unknown-keys", "allow_unknown_keys", "accept overrides that nothing reads", "switch")
MODEL = (
    Flag("--model", "policy_model_name", "the name of the model", short="-m"),
    Flag("--model-url", "policy_base_url", "the base URL of the model's endpoint"),
    Flag("--model-api-key", "policy_api_key", "the API key of the model's endpoint"),
    ALLOW_UNKNOWN,
)
SERVERS = (*SELECTORS, *MODEL)
ENTRYPOINT = Flag("--resources-server", "resources_servers", "a resources server, by name", "entrypoint")
SERVE_AS = Flag("--as", "serve_as", "serve resources servers over this protocol", choices=("openenv", "mcp"))
JSON = Flag("--json", "json", "print JSON", "switch")
QUIET = Flag("--quiet", "quiet", "show no progress", "switch")
YES = Flag("--yes", "yes", "delete without asking", "switch", "-y")
DISABLE_AGGREGATION = Flag("--disable-aggregation", "disable_aggregation", "write rollouts only, no metrics", "switch")
INPUTS = Flag("--inputs", "materialized_inputs_jsonl_fpath", "the planned rollouts; by default next to the rollouts")
PASS_THRESHOLD = Flag("--pass-threshold", "pass_threshold", "minimum reward for a rollout to pass", "number")
ROLLOUTS = (Positional("ROLLOUTS", "rollouts_jsonl_fpaths", "rollouts files: paths or quoted wildcards", many=True),)
TOKENIZER = Flag("--tokenizer", "tokenizer", "tokenizer.json or its folder, to tell re-tokenized from edited histories")
TOKEN_FORMATS = ("trajectories", "nemo-rl", "trl", "verl", "openrlhf", "skyrl", "art", "atropos", "prime-rl")
EXPORT_FORMATS = (*TOKEN_FORMATS, "sft", "dpo", "atif")
STORAGE = Flag("--storage", "storage", "where it is stored; by default Hugging Face", choices=("hf", "gitlab"))
DOMAIN = Flag("--domain", "domain", "only this domain, such as math")
MANIFEST_FILTERS = (
    DOMAIN,
    Flag("--modality", "modality", "only this modality"),
    Flag("--licensing", "licensing", "only this license"),
    Flag("--status", "status", "only this status", choices=("experimental", "no-manifest")),
    Flag("--lifecycle", "lifecycle", "only this lifecycle stage", choices=("active", "deprecated")),
)
DATASET_MIGRATE = (
    Flag("--input", "input_jsonl_fpath", "the JSONL file to upload", short="-i"),
    Flag("--name", "dataset_name", "the name of the dataset"),
    Flag("--revision", "version", "GitLab: the version, x.x.x; Hugging Face: the branch", also=("revision",)),
    Flag("--split", "split", "split of the rows; train is checked first", choices=("train", "validation", "test")),
    Flag("--create-pr", "create_pr", "Hugging Face: open a pull request instead of pushing", "switch"),
    Flag("--resource-config", "resource_config_path", "config of the resources server, for the domain in the name"),
    Flag("--organization", "hf_organization", "Hugging Face: owner of the dataset"),
    Flag("--collection-name", "hf_collection_name", "Hugging Face: title of the collection to add it to"),
    Flag("--collection-slug", "hf_collection_slug", "Hugging Face: slug at the end of the collection's URL"),
    Flag("--prefix", "hf_dataset_prefix", "Hugging Face: first part of the dataset's name"),
    Flag("--commit-message", "commit_message", "Hugging Face: commit message"),
    Flag("--commit-description", "commit_description", "Hugging Face: commit description"),
    YES,
    Flag("--dry-run", "dry_run", "show what would happen and change nothing", "switch"),
    JSON,
)
EVAL_RUN = (
    Flag("--no-serve", "no_serve", "use servers that are already running", "switch"),
    Flag("--resume", "resume_from_cache", "run only what is missing from the output", "switch"),
    Flag("--agent", "agent_name", "the agent for rows that name none", short="-a"),
    Flag("--input", "input_jsonl_fpath", "the tasks: JSONL, plain, gzip or a pipe", short="-i"),
    Flag("--output", "output_jsonl_fpath", "where the rollouts go", short="-o"),
    Flag("--limit", "limit", "run at most N tasks", "number"),
    Flag("--num-repeats", "num_repeats", "rollouts per task: a number, or {agent: n, _default: n}", "number"),
    Flag("--shard", "shard", "K/N: run part K of N of the tasks; `gym eval aggregate` merges the parts"),
    Flag("--prompt-config", "prompt_config", "a prompt template applied to every row"),
    Flag("--concurrency", "num_samples_in_parallel", "rollouts at once; by default adapts to the endpoint", "number"),
    Flag("--workers", "num_rollout_workers", "processes that run rollouts: a number, or `auto` for one per core"),
    Flag("--on", "rollout_workers_on", "where workers run", choices=("machine", "ray")),
    Flag(
        "--split",
        "split",
        "which datasets of the config to run",
        choices=("train", "validation", "example", "benchmark"),
    ),
    Flag("--temperature", "responses_create_params.temperature", "sampling temperature", "number"),
    Flag("--top-p", "responses_create_params.top_p", "nucleus sampling", "number"),
    Flag("--max-output-tokens", "responses_create_params.max_output_tokens", "maximum tokens per reply", "number"),
    DISABLE_AGGREGATION,
    Flag("--timeout", "rollout_timeout_seconds", "deadline per rollout, in seconds", "number"),
    Flag("--allow-failures", "allow_failures", "how many rollouts may fail: a number or a percentage"),
    Flag("--fail-on-tool-error", "fail_on_tool_error", "count a rollout whose tool crashed as failed", "switch"),
    Flag("--max-failure-rate", "max_failure_rate", "stop early at this share of failures, such as 0.5", "number"),
    Flag("--wait-for-model", "wait_for_model", "seconds to wait for a model that is still loading", "number"),
    QUIET,
)
