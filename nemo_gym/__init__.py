# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym: evaluate LLM agents in environments and collect rollouts to train them.

Importing this package is cheap. It has one side effect: the server folders (`resources_servers`,
`responses_api_agents`, `responses_api_models`, ...) of every search root become importable. The common names below are
loaded on first use.

The public modules and packages, each in the row of those who need it first; names with an underscore are private:

    environment authors      adapters base_resources_server code_execution code_interpreters cpu_pool errors
                             failure_kinds grading judge mcp_auto_exposure reward_profile session_store
                             step_environments testing
    agents and trainers      base_responses_api_agent base_responses_api_model config_types global_config integrations
                             item_forms openai_utils policy_versions programs responses_converter rollout_collection
                             rollout_correlation rollout_observability sandbox server_utils session_client
                             token_engine token_id_capture trajectories
    code for NeMo Gym        anthropic_converter benchmarks chat_streaming cli deliverables discovery exporters
                             gitlab_utils hf_utils model_call_capture path_utils profiling prompt responses_streaming
                             rollout_reverification secret_utils server_metadata session_gateway skills
                             train_data_utils
    aliases                  cli_setup_command dataset_orchestrator
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nemo_gym._util.search_root_finder import SERVER_TYPES, install_finder
from nemo_gym._version import __version__ as __version__

__package_name__ = "nemo_gym"

ROOT_DIR = Path(__file__).absolute().parent
PARENT_DIR = ROOT_DIR.parent
WORKING_DIR = PARENT_DIR if (PARENT_DIR / "pyproject.toml").exists() else Path.cwd()
CACHE_DIR = WORKING_DIR / "cache"
RESULTS_DIR = WORKING_DIR / "results"
NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME = "NEMO_GYM_EXTRA_ROOTS"

_LAZY_EXPORTS: dict[str, tuple[str, ...]] = {
    "base_resources_server": (
        "BaseMultiRewardVerifyResponse",
        "BaseResourcesServerConfig",
        "BaseRunRequest",
        "BaseSeedSessionRequest",
        "BaseSeedSessionResponse",
        "BaseVerifyRequest",
        "BaseVerifyResponse",
        "ReverifyMode",
        "SimpleResourcesServer",
    ),
    "base_responses_api_agent": ("BaseResponsesAPIAgentConfig", "SimpleResponsesAPIAgent"),
    "base_responses_api_model": ("BaseResponsesAPIModelConfig", "SimpleResponsesAPIModel"),
    "config_types": (
        "AggregateMetrics",
        "AggregateMetricsRequest",
        "BaseRunServerInstanceConfig",
        "BaseServerConfig",
        "Domain",
        "ModelServerRef",
    ),
    "openai_utils": (
        "NeMoGymAsyncOpenAI",
        "NeMoGymChatCompletion",
        "NeMoGymChatCompletionCreateParamsNonStreaming",
        "NeMoGymResponse",
        "NeMoGymResponseCreateParamsNonStreaming",
    ),
    "server_utils": ("SESSION_ID_KEY", "ServerClient", "get_response_json", "raise_for_status"),
}
_MODULE_OF = {name: module for module, names in _LAZY_EXPORTS.items() for name in names}

__all__ = sorted(  # noqa: PLE0605
    [
        *_MODULE_OF,
        "CACHE_DIR",
        "NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME",
        "PARENT_DIR",
        "RESULTS_DIR",
        "ROOT_DIR",
        "WORKING_DIR",
        "__package_name__",
        "__version__",
        "component_search_roots",
    ]
)


def component_search_roots(*, sys_path: Iterable[str] | None = None) -> list[Path]:
    """Return the folders to search for servers, configs and data, highest priority first.

    The entries of `NEMO_GYM_EXTRA_ROOTS`, then those of `sys_path` (if given) other than the current folder and the
    install folder, then the current folder, then the folder the package is installed in.
    """
    extra = [Path(entry) for entry in os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, "").split(os.pathsep) if entry]
    cwd = Path.cwd()
    own = {cwd.resolve(), PARENT_DIR.resolve()}
    from_sys_path = [Path(entry) for entry in sys_path or () if entry and Path(entry).resolve() not in own]
    roots: dict[Path, Path] = {}
    for root in (*extra, *from_sys_path, cwd, PARENT_DIR):
        roots.setdefault(root.resolve(), root.absolute())
    return list(roots.values())


def _resolve_under_cwd_or_install(rel: str | Path, *, validator: Callable[[Path], bool] | None = None) -> Path:
    """Return the first path under the search roots where `rel` exists, or that `validator` accepts."""
    path = Path(rel)
    if path.is_absolute():
        return path
    accepts = validator or Path.exists
    candidates = [root / path for root in component_search_roots()]
    return next((candidate for candidate in candidates if accepts(candidate)), candidates[0])


def _make_servers_importable() -> None:
    """Make the servers of every search root importable; if two folders share a name, the first one wins."""
    roots = [str(root) for root in component_search_roots()]
    cwd = Path.cwd()
    if project := next((above.parent for above in (cwd, *cwd.parents) if above.name in SERVER_TYPES), None):
        # Running `pytest` inside a server's folder means that project's servers.
        roots = list(dict.fromkeys([*roots[:-1], str(project), roots[-1]]))
    known = set(roots)
    sys.path[:] = [*roots, *(entry for entry in sys.path if entry and os.path.abspath(entry) not in known)]
    install_finder()


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_make_servers_importable()
