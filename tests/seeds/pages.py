# SPDX-License-Identifier: Apache-2.0
"""Where our documentation says what a document promises: for each page, below `docs/`, the items that it covers.

    python -m tests.seeds.pages

prints all of it as a table.
"""

import importlib
from collections.abc import Iterator

PAGES: dict[str, dict[str, list[str]]] = {
    "../CONTRIBUTING.md": {
        "project_readme": [
            "`uv venv --python 3.12` makes the environment",
            "`uv sync --extra dev --group docs` installs everything",
            "`pre-commit install` sets the hooks up",
        ],
    },
    "concepts/config.md#errors": {
        "unified_command_reference": [
            "`gym env validate` starts neither Ray nor a server",
            "it finds missing and malformed config paths",
            "it finds unknown server references",
            "it finds `???` that nobody set",
            "it finds blocks that break the schema",
            "it exits with 0 if all is well",
            "it exits with 1 and a message without traceback if not",
            "no model is needed to validate",
            "a model that is given is validated too",
        ],
    },
    "concepts/config.md#servers": {
        "project_readme": [
            "servers may have a host and a port of their own",
            "without a port, a free one is taken",
        ],
    },
    "concepts/config.md#what-overrides-what": {
        "legacy_command_reference": [
            "`+config_paths=[a.yaml,b.yaml]` is a list of files",
        ],
        "unified_command_reference": [
            "`+key=value` adds and `++key=value` adds or overrides",
            "flags and overrides mix on one line",
            "overrides without a flag reach the config",
        ],
        "project_readme": [
            "configs come from files, env.yaml and the command line",
            "later files win over earlier ones, then env.yaml, then the command line",
            "`+simple_agent…resources_server.name=` fills the reference left open",
            "`+simple_agent…resources_server.name=multineedle` makes an agent `simple_agent`",
        ],
    },
    "concepts/servers.md#environments": {
        "legacy_command_reference": [
            "every server has an environment of its own",
        ],
        "unified_command_reference": [
            "each server runs in an environment that fits it",
        ],
        "project_readme": [
            "requirements of its own are installed for it alone",
            "an environment that was built is linked as `.venv` in the server's folder",
            "two environments may need two versions of math-verify",
        ],
    },
    "concepts/servers.md#ray": {
        "faq": [
            "`ray_head_node_address` joins an existing cluster",
            "without it, a local cluster is started and its address kept in the config",
            "without the package, the extra is named",
        ],
    },
    "concepts/servers.md#sandboxes": {
        "project_readme": [
            "commands run in containers, one for each task",
        ],
    },
    "concepts/servers.md#watching-and-stopping": {
        "legacy_command_reference": [
            "`ng_status` lists servers with mark, type, port, pid and uptime",
            "it ends with how many are healthy",
        ],
        "unified_command_reference": [
            "`gym env status` shows running servers and their health",
        ],
    },
    "concepts/servers.md#where-they-run": {
        "project_readme": [
            "the head server listens at 127.0.0.1:11000",
            "it holds the config of all servers",
        ],
    },
    "concepts/trust.md#secrets": {
        "unified_command_reference": [
            "secrets are hidden there",
        ],
        "rollout_guide": [
            "the key is not shown",
        ],
    },
    "faq.md#422-unprocessable-entity-extra-inputs-are-not-permitted": {
        "rollout_guide": [
            "tools with `database` or `operation_type` are refused",
            "the agent answers such a request with 422",
        ],
    },
    "faq.md#a-check-says-that-a-file-has-no-licence": {
        "project_readme": [
            "every file begins with its licence",
        ],
    },
    "faq.md#can-i-run-several-environments-at-once": {
        "project_readme": [
            "several environments run at once",
        ],
    },
    "faq.md#permissionerror-from-psutil-or-sysctl-when-ray-starts": {
        "faq": [
            "where Ray may not run, servers that do not use it run all the same",
        ],
    },
    "faq.md#the-documentation-does-not-build": {
        "project_readme": [
            "the documentation builds without warnings",
        ],
        "faq": [
            "the documentation builds without warnings",
        ],
    },
    "faq.md#what-is-the-difference-between-sft-and-rl-and-where-does-a-gym-help": {
        "faq": [
            "reinforcement learning on labelled data needs a scorer that compares exactly",
        ],
    },
    "faq.md#why-are-all-answers-of-my-model-the-same": {
        "faq": [
            "`extra_body` of a vLLM model turns an endpoint's cache off",
        ],
    },
    "guides/bring-your-own-agent.md": {
        "project_readme": [
            "agents of other frameworks can be used",
        ],
    },
    "guides/collect-rollouts.md": {
        "unified_command_reference": [
            "`gym eval run` collates, starts servers and collects",
            "`--no-serve` collects from servers that run",
        ],
    },
    "guides/collect-rollouts.md#2-what-it-writes": {
        "unified_command_reference": [
            "the expanded rows go to STEM_materialized_inputs.jsonl",
            "every scored rollout is written as it ends",
            "failures go to STEM_failures.jsonl",
        ],
        "rollout_guide": [
            "each rollout is a line of the output with its reward",
        ],
    },
    "guides/collect-rollouts.md#3-go-on-after-an-interruption": {
        "unified_command_reference": [
            "`--resume` plays what is missing, by task and rollout index",
            "it says how much was there and how much is left",
            "without the files of a run, it starts afresh",
            "without `--resume`, old output is cleared",
            "a run whose config or data has changed is noticed",
        ],
    },
    "guides/collect-rollouts.md#4-look-at-the-tasks": {
        "unified_command_reference": [
            "`gym eval profile` has the statistics of each task",
        ],
    },
    "guides/collect-rollouts.md#5-spread-a-run-over-machines": {
        "unified_command_reference": [
            "`gym eval aggregate` merges the files of a glob",
            "metrics of the union go to STEM_aggregate_metrics.json",
            "`+disable_aggregation=true` leaves metrics to aggregate",
        ],
    },
    "guides/collect-rollouts.md#how-many-at-once": {
        "legacy_command_reference": [
            "`num_samples_in_parallel` bounds what runs at once",
        ],
        "rollout_guide": [
            "`num_samples_in_parallel` bounds what runs at once",
        ],
    },
    "guides/collect-rollouts.md#sampling-parameters": {
        "legacy_command_reference": [
            "`responses_create_params` overrides temperature and output tokens",
            "parameters may be left out",
        ],
        "unified_command_reference": [
            "`--temperature`, `--top-p` and `--max-output-tokens` set create params",
            "`++responses_create_params.FIELD` sets any other",
            "overrides are merged into each row, top-level keys only",
        ],
        "rollout_guide": [
            "`+responses_create_params={temperature: 0.7, max_tokens: 2048}` overrides those of the rows",
        ],
    },
    "guides/getting-started.md#2-use-your-own-model": {
        "unified_command_reference": [
            "four flags configure the model",
        ],
    },
    "guides/look-at-rollouts.md#1-open-a-file": {
        "legacy_command_reference": [
            "`ng_viewer +jsonl_fpath=FILE` shows rollouts in a browser",
            "`server_host=0.0.0.0` takes requests from anywhere",
            "`server_port` is the port, or the next free one",
        ],
        "project_readme": [
            "`ng_viewer` shows what was collected",
        ],
        "rollout_guide": [
            "`ng_viewer FILE` shows the results",
        ],
    },
    "guides/prepare-data.md#1-say-where-the-rows-are": {
        "project_readme": [
            "a new server's config has train, validation and example datasets under its agent",
            "a dataset has name, type and file",
            "a type is train, validation or example",
            "train and validation need a licence, examples do not",
            "a licence may stand there twice",
            "a GitLab identifier says where a dataset is",
            "`start_idx` and `end_idx` take a part of a file",
            "a config has an agent with an example dataset",
        ],
        "faq": [
            "a new server's config has three datasets under its agent",
            "a dataset has name, type and file",
            "a type is train, validation or example",
            "train and validation need a licence, examples do not",
            "a licence may stand there twice",
            "a GitLab identifier says where a dataset is",
            "`start_idx` and `end_idx` take a part of a file",
            "`num_repeats` repeats rows, once by default",
            "a Hugging Face identifier has a repository and maybe a file",
            "without a file, the split of the dataset's type is taken",
            "both identifiers may stand together",
            "the config of example_multi_step has train and validation with both identifiers",
        ],
        "rollout_guide": [
            "a row has id, create params, ground truth, category and environment name",
            "tools have type, name, description, parameters and strict",
            "ground truth is a list of calls with arguments as text",
            "a row as the guide shows it is played",
            "extra fields of a row are kept",
        ],
    },
    "guides/prepare-data.md#2-collate-for-training": {
        "legacy_command_reference": [
            "`mode=train_preparation` prepares train and validation",
            "there is no third mode",
            "datasets and metrics go to `output_dirpath`",
            "`should_download` fetches what is missing",
        ],
        "unified_command_reference": [
            "`gym dataset collate` validates, collates and measures",
            "collate can download what is missing",
            "collate writes splits and metrics",
        ],
        "project_readme": [
            "`ng_prepare_data` reports missing datasets before anything is done",
            "train and validation files are written to `output_dirpath`",
            "their statistics are kept beside them",
            "rows are written as they are, without other processing",
            "each mode is about its own datasets",
        ],
        "faq": [
            "its train and validation rows are prepared",
            "`should_download` fetches from Hugging Face",
            "`data_source=gitlab` fetches from GitLab",
            "`ng_prepare_data` reports missing datasets before anything is done",
            "train and validation files are written to `output_dirpath`",
            "their statistics are kept beside them",
            "rows are written as they are, without other processing",
            "each mode is about its own datasets",
        ],
    },
    "guides/prepare-data.md#3-when-a-row-is-bad": {
        "project_readme": [
            "it names files and rows that are bad",
            "a row needs `responses_create_params`, valid for the Responses API",
        ],
        "faq": [
            "it names files and rows that are bad",
            "a row needs `responses_create_params`, valid for the Responses API",
        ],
    },
    "guides/prepare-data.md#4-contribute-example-rows": {
        "legacy_command_reference": [
            "`mode=example_validation` checks example data",
        ],
        "project_readme": [
            "it counts examples, tools and turns",
            "it measures the input in OpenAI tokens",
            "it counts distinct create params",
            "it measures temperature and other sampling parameters",
            "it counts distinct user messages",
            "statistics are printed and kept beside each file",
            "statistics that differ from those kept are a conflict",
        ],
        "faq": [
            "`ng_prepare_data +mode=example_validation` checks its examples",
            "it counts examples, tools and turns",
            "it measures the input in OpenAI tokens",
            "it counts distinct create params",
            "it measures temperature and other sampling parameters",
            "it counts distinct user messages",
            "statistics are printed and kept beside each file",
            "statistics that differ from those kept are a conflict",
        ],
    },
    "guides/prepare-data.md#5-fill-a-prompt-into-raw-rows": {
        "unified_command_reference": [
            "`gym dataset render` fills a prompt into raw rows",
            "render refuses rows that have an input",
            "render keeps the other fields of a row",
        ],
    },
    "guides/run-environments-and-benchmarks.md#1-what-there-is": {
        "unified_command_reference": [
            "`gym list benchmarks` has domain, agent and repeats",
            "`gym list environments` has short name, domain and description",
            "a listed name is environments/NAME/config.yaml and fits `--environment`",
            "`gym list agents` tells composable from self-contained and has the variants",
            "`gym search` looks at name, agent, resources server, dataset and domain",
        ],
        "faq": [
            "`bytedtsinghua_dapo17k.yaml` names `math_with_judge_simple_agent` and its training file",
        ],
    },
    "guides/run-environments-and-benchmarks.md#2-play": {
        "rollout_guide": [
            "the two configs are where the guide says",
            "example data is in the server's data folder",
            "training data is generated to data/train.jsonl",
        ],
    },
    "guides/run-environments-and-benchmarks.md#3-a-benchmark": {
        "unified_command_reference": [
            "`gym eval prepare` runs the prepare.py of a benchmark",
        ],
    },
    "guides/share-datasets.md#1-say-who-you-are": {
        "faq": [
            "env.yaml holds token, organization, collection name and slug",
            "Git ignores env.yaml",
        ],
    },
    "guides/share-datasets.md#2-upload": {
        "legacy_command_reference": [
            "`ng_upload_dataset_to_hf` uploads a file",
            "the name is made of organization, prefix, domain and server",
            "the dataset joins a collection, known by name and slug",
            "the domain is read from `resource_config_path`",
            "`hf_dataset_prefix` stands before the name; its default is the one that the FAQ gives",
        ],
        "unified_command_reference": [
            "transfers use Hugging Face unless `--storage gitlab`",
            "`gym dataset upload` uploads a JSONL file",
        ],
        "faq": [
            "`hf_dataset_prefix` is `Nemotron-RL` unless set",
            "a dataset is called ORGANIZATION/PREFIX-DOMAIN-NAME",
            "`dataset_name` takes the place of the server's name",
            "`ng_upload_dataset_to_hf` uploads",
            "the config of the resources server is required",
            "the split is train by default, whose rows must have `responses_create_params`",
            "validation and test are not checked",
            "`create_pr` opens a pull request and its link is printed",
            "`revision` is an existing branch without `create_pr`",
            "with `create_pr` it may be a new one",
            "`commit_message` and `commit_description` describe the commit",
            "without a message, one is generated",
        ],
    },
    "guides/share-datasets.md#3-download": {
        "legacy_command_reference": [
            "`ng_download_dataset_from_hf` saves an artifact of a repository",
        ],
        "unified_command_reference": [
            "`gym dataset download` downloads a dataset",
        ],
        "faq": [
            "`split` downloads one split to a folder",
            "without `split`, all are downloaded as files of their own",
            "`artifact_fpath` downloads a raw file",
            "`split` and `artifact_fpath` exclude each other",
        ],
    },
    "guides/share-datasets.md#4-let-a-config-fetch-its-data": {
        "faq": [
            "a registry that cannot be reached is said",
        ],
    },
    "guides/share-datasets.md#5-gitlab": {
        "legacy_command_reference": [
            "`ng_upload_dataset_to_gitlab` uploads a file as a version",
            "a version has the form x.x.x",
            "`ng_download_dataset_from_gitlab` saves an artifact to `output_fpath`",
            "`ng_delete_dataset_from_gitlab` deletes a dataset",
            "deleting asks first",
            "`delete_from_gitlab` deletes there after the upload",
            "`ng_gitlab_to_hf_dataset` uploads and deletes from GitLab",
            "it has no `delete_from_gitlab`",
        ],
        "unified_command_reference": [
            "`gym dataset rm` deletes from GitLab and asks first",
            "`gym dataset migrate` uploads and deletes from GitLab",
        ],
        "project_readme": [
            "`mlflow_tracking_uri` and `mlflow_tracking_token` of env.yaml say where and who",
            "datasets are uploaded and downloaded by name and version",
            "a version has the form x.x.x",
            "the registry is one of MLflow",
        ],
        "faq": [
            "`delete_from_gitlab` deletes there after an upload; it is off by default",
            "deleting is confirmed at a prompt",
            "`ng_gitlab_to_hf_dataset` does both",
            "it takes `split`",
            "`ng_delete_dataset_from_gitlab` deletes alone",
            "GitLab tells upper from lower case",
        ],
    },
    "guides/write-an-environment.md": {
        "project_readme": [
            "an environment can be hosted without a training framework",
        ],
    },
    "guides/write-an-environment.md#2-the-server": {
        "rollout_guide": [
            "the server verifies against the ground truth",
        ],
    },
    "guides/write-an-environment.md#3-its-config": {
        "rollout_guide": [
            "the agent loops up to six steps over tools and model",
        ],
    },
    "how-to/contribute-a-server.md#let-it-be-checked": {
        "project_readme": [
            "pytest runs in the folder of a server",
            "the same config paths serve `ng_prepare_data` and `ng_run`",
        ],
        "faq": [
            "`ng_run` takes the same configs",
        ],
    },
    "how-to/contribute-a-server.md#make-the-folder": {
        "legacy_command_reference": [
            "`ng_init_resources_server` makes a folder with template files",
        ],
        "unified_command_reference": [
            "`gym env init` makes config, app, tests, README and data",
        ],
        "project_readme": [
            "every server has at least one test",
            "`ng_init_resources_server +entrypoint=resources_servers/test_weather` makes it",
            "requirements.txt begins with `-e nemo-gym[dev] @ ../../`",
            "app.py has the config class and the server class of that name",
            "it has `setup_webserver` and `verify` to be edited",
            "README has licensing information",
            "the data folder has five examples, metrics and rollouts",
            "there is a test at tests/test_app.py",
        ],
    },
    "how-to/contribute-a-server.md#write-example-rows": {
        "project_readme": [
            "`ng_prepare_data +mode=example_validation` checks its examples",
        ],
    },
    "how-to/contribute-a-server.md#write-the-tool": {
        "project_readme": [
            "a tool is a method with a request and a response class, registered as a route",
            "`verify` returns the request with a reward",
            "a complete example is in resources_servers/simple_weather",
            "its agent answers that it is cold",
        ],
    },
    "how-to/generate-training-data.md#3-write-it-for-the-trainer": {
        "rollout_guide": [
            "examples/multistep_toolcalling_datagen generates training data of one's own",
        ],
    },
    "how-to/make-a-server-fast.md#profile-it": {
        "faq": [
            "`profiling_enabled` is off by default",
            "`profiling_results_dirpath` is where profiles go",
            "that folder is relative to where the command is given",
            "earlier profiles of a server are overwritten",
            "a profile has name, ncall, tsub, ttot and tavg",
        ],
    },
    "how-to/make-a-server-fast.md#use-all-nodes-of-a-cluster": {
        "faq": [
            "`initialize_ray` of `server_utils` connects a server",
        ],
    },
    "how-to/run-a-simple-agent.md#ask-the-agent": {
        "project_readme": [
            "`client.py` asks the running agent, whatever its name",
            "it prints the call, its output and the answer",
            "`ServerClient.load_from_global_config()` posts to a server by name",
            "the body may be `NeMoGymResponseCreateParamsNonStreaming`",
        ],
    },
    "how-to/run-a-simple-agent.md#see-the-config-as-the-servers-see-it": {
        "legacy_command_reference": [
            "`ng_dump_config` prints the resolved config",
        ],
        "unified_command_reference": [
            "`gym env resolve` prints the merged config",
        ],
        "project_readme": [
            "`ng_dump_config` prints what `ng_run` would see",
        ],
    },
    "how-to/run-a-simple-agent.md#start-the-servers": {
        "legacy_command_reference": [
            "the example starts three servers",
        ],
        "unified_command_reference": [
            "selectors turn a name into its config file",
            "a mistyped name gets the closest one",
            "`--config PATH` names a file itself",
            "`gym env start` starts agents, models and resources of the configs",
        ],
        "project_readme": [
            "`+config_paths=${name}` takes a list of env.yaml",
            "servers tell when they are up and where",
        ],
    },
    "how-to/run-a-simple-agent.md#the-config": {
        "project_readme": [
            "the config of `simple_agent` has instance, kind, type, entrypoint and references",
            "`???` marks a value that must be given",
            "names of instances are unique",
            "`SimpleAgentConfig` has `ResourcesServerRef` and `ModelServerRef` of `server_utils`",
            "a server's config may have any structure",
            "a reference to no server is an error that lists the servers",
            "a missing value is an error that names its key",
            "`policy_base_url`, `policy_api_key` and `policy_model_name` say which model is trained",
            "model and key are read from env.yaml",
            "Git ignores env.yaml",
        ],
        "rollout_guide": [
            "`policy_base_url`, `policy_api_key` and `policy_model_name` configure the endpoint",
        ],
    },
    "how-to/run-a-simple-agent.md#the-three-parts": {
        "project_readme": [
            "models, resources and agents are in three folders beside `nemo_gym`",
            "models answer Responses and Chat Completions",
            "agents answer Responses",
        ],
    },
    "how-to/run-a-simple-agent.md#what-came-back": {
        "project_readme": [
            "`output` holds messages, reasoning and function calls",
            "think blocks, text and calls of a chat reply become items of their own, in this order",
            "reasoning is separated by the model server",
        ],
        "rollout_guide": [
            "the response holds the tool calls",
        ],
    },
    "migrating-from-nemo-gym.md#commands": {
        "legacy_command_reference": [
            "every command has a short and a full name",
            "both names do the same",
            "every command still does what it did",
            "`+help=true` and `+h=true` list all parameters of a command with their meaning",
            "parameters have the documented defaults",
            "`ng_run` starts models, resources and agents",
            "`ng_test` runs the pytest suite of a server",
            "`entrypoint` is a relative path of two parts",
            "`should_validate_data` checks examples, metrics and rollouts too",
            "`ng_test_all` tests every server",
            "`fail_on_total_and_test_mismatch` fails if a server has no tests",
            "`ng_dev_test` runs the core tests with coverage",
            "`agent_name` is the agent that plays",
            "`input_jsonl_fpath` is read",
            "`output_jsonl_fpath` is written",
            "`limit` takes the first rows",
            "`num_repeats` plays each row so often",
            "`ng_profile` makes a dataset of tasks with their rewards",
            "a profiled row has the fields of its task, mean, deviation, least, greatest and number",
            "pass rates are there only with `pass_threshold`",
            "rollouts must belong to the dataset",
            "`ng_help` lists all commands",
            "`ng_version` tells version and system",
            "`ng_version +json=true` is JSON",
            "`ng_pip_list` lists the packages of a server",
            "`format` is columns, freeze or json",
            "`outdated` lists what has newer versions",
        ],
        "unified_command_reference": [
            "one entry point `gym` with groups; `ng` is the same",
            "every group and every command has `-h` and `--help`",
            "every command takes its documented flags",
            "`gym --help` lists groups with what they are for",
            "`gym --version` tells version, Python, dependencies and system",
            "`gym env packages` lists the packages of a server's environment",
            "`gym env test` runs one suite, or all without a name",
            "`gym dev test` runs the core tests with coverage",
            "a legacy command says what replaces it, then runs it",
            "every legacy command has a replacement",
            "common overrides have flags that mean the same",
        ],
        "project_readme": [
            "`ng_dev_test` runs the tests of the core",
            "`coverage html` shows what `ng_dev_test` covered",
            "`ng_test +entrypoint=responses_api_agents/simple_agent` tests one server",
            "`ng_test_all` tests all servers",
            "`ng_run` with two files and a reference on the command line starts the weather example",
            "`ng_run` starts it from its two files",
            "`ng_collect_rollouts` with null parameters plays all its examples",
        ],
        "rollout_guide": [
            "`ng_run` starts the workplace assistant, with the endpoint on the command line",
            "`ng_collect_rollouts` plays `workplace_assistant_simple_agent`",
            "the input may be an absolute path",
            "`+limit=5` takes five records",
            "without a limit all records are processed",
            "`limit`, `num_repeats` and `num_samples_in_parallel` are optional",
            "`num_repeats` repeats each example",
            "the eight commands of the table are there",
            "nemo_gym/rollout_collection.py collects rollouts",
        ],
    },
    "migrating-from-nemo-gym.md#config-keys": {
        "project_readme": [
            "agents share the model server; `openai_model` is its older name",
            "`openai_model_name` is the older name of the field",
        ],
    },
}
"""Items by page and document, in their own words."""


def list_pages() -> Iterator[tuple[str, str, str]]:
    """Yield document, item and page of all that the documents promise, in their order."""
    found = {(name, says): page for page, parts in PAGES.items() for name, items in parts.items() for says in items}
    for document in dict.fromkeys(name for parts in PAGES.values() for name in parts):
        for entry in importlib.import_module(f"tests.seeds.test_{document}").ITEMS:
            yield document, entry.says, found.get((document, entry.says), "")


if __name__ == "__main__":
    print("| document | promises | our page |\n|---|---|---|")
    for row in list_pages():
        print("| " + " | ".join(row) + " |")
