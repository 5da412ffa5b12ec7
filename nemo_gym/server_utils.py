# SPDX-License-Identifier: Apache-2.0
"""How servers run and call each other: the client side, and the base classes of every server.

Calls have a deadline and a bounded number of attempts. `nemo_gym._servers` starts, watches and stops servers.
"""

import inspect
import logging
import os
import sys
from abc import abstractmethod
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from aiohttp import ClientResponse
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr
from starlette.types import ASGIApp

from nemo_gym._servers.direct_calls import call, response as replies, running_apps as registry
from nemo_gym._servers.direct_calls.response import lazy_cookies as lazy_cookies
from nemo_gym._servers.head_app import ServerInstanceDisplayConfig as ServerInstanceDisplayConfig, build_head_app
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.http.guard import BodyLimit, ErrorsAsJson, make_validation_handler
from nemo_gym._servers.http.gym_app import GymApp
from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware, session_cookie
from nemo_gym._servers.http_session import (
    GlobalAIOHTTPAsyncClientConfig as GlobalAIOHTTPAsyncClientConfig,
    close_global_aiohttp_client as close_global_aiohttp_client,
    find_model_client,
    get_global_aiohttp_client,
    global_aiohttp_client_exit as global_aiohttp_client_exit,
    is_global_aiohttp_client_request_debug_enabled,
    is_global_aiohttp_client_setup as is_global_aiohttp_client_setup,
    set_global_aiohttp_client as set_global_aiohttp_client,
)
from nemo_gym._servers.policy_versions.announcing import RunVersion
from nemo_gym._servers.policy_versions.of_this_server import tell_servers
from nemo_gym._servers.process_environment import (
    INSTANCE_NAME_ENV,
    derive_run_secret,
    get_nemo_gym_fastapi_num_workers as get_nemo_gym_fastapi_num_workers,
    is_nemo_gym_fastapi_entrypoint as is_nemo_gym_fastapi_entrypoint,
    is_nemo_gym_fastapi_worker as is_nemo_gym_fastapi_worker,
    is_supervised,
    may_serve,
    run_token_path,
    run_workers,
    starting,
    this_worker,
)
from nemo_gym._servers.processes import private_run_files as run_files, server_workers as workers
from nemo_gym._servers.processes.affinity import ReadSession, SessionAffinity
from nemo_gym._servers.processes.server_logs import prefix_output
from nemo_gym._servers.ray.cluster import join_named_cluster_if_used, join_or_start_cluster, stop_own_cluster
from nemo_gym._servers.ray.replica_calls import call_replica, find_base_url, guard_replica_sessions
from nemo_gym._servers.server_addresses import find_server_address
from nemo_gym._servers.this_process import fetch_head_config, serve_in_thread, serve_instance
from nemo_gym._transport import http_calls as http, retries
from nemo_gym._transport.callers import mark_own_call
from nemo_gym._transport.deadline import add_seconds_left
from nemo_gym._transport.failures import HEADER, Failure, FailureKind, decode_failure
from nemo_gym._transport.probe import ServerStatus as ServerStatus, status_of
from nemo_gym._util.open_file_limit import allow_open_files
from nemo_gym._util.quick_state import QuickState
from nemo_gym._util.rollout_paths import (
    apply_rollout_prefix as apply_rollout_prefix,
    rollout_path_prefix as rollout_path_prefix,
)
from nemo_gym._util.row_keys import SESSION_ID_KEY as SESSION_ID_KEY
from nemo_gym._util.trim_buffer import trim_buffer
from nemo_gym.config_types import (
    AgentServerRef as AgentServerRef,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
    ModelServerRef as ModelServerRef,
    ResourcesServerRef as ResourcesServerRef,
)
from nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    maybe_get_global_config_dict,
)
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.secret_utils import recursively_hide_secrets

if TYPE_CHECKING:
    import uvicorn

LOG = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_NUM_TRIES = retries.REPEATABLE_ATTEMPTS
_MODEL_ENDPOINTS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")


async def request(
    method: str,
    url: str,
    _internal: bool = False,
    _max_connection_retries: int | None = None,
    _server_name: str | None = None,
    *,
    _idempotent: bool | None = None,
    _bounded_s: float | None = None,
    _to_model: bool = False,
    **kwargs: Any,
) -> ClientResponse:
    """Send one request through the process-wide session.

    A call that never reached the server is retried, for longer while servers start; one that may have run there only if
    its method or `_idempotent` allows it. Error statuses are returned. The caller ends it all within `_bounded_s`.
    A `_to_model` call returns its whole reply, and never goes to a server other than the named one.
    `_max_connection_retries` bounds the further attempts after a broken connection; `_server_name` is for the log.
    """
    if "json" in kwargs and (body := kwargs.pop("json")) is not None:
        kwargs["data"] = trim_buffer(http.encode_json(body))  # kept until the answer arrives
        kwargs["headers"] = {"Content-Type": http.JSON_CONTENT_TYPE, **(kwargs.get("headers") or {})}
    if _internal or not _to_model:
        kwargs["headers"] = mark_own_call(kwargs.get("headers"))
    if is_global_aiohttp_client_request_debug_enabled():
        LOG.info("%s %s%s", method, url, f" ({_server_name})" if _server_name else "")
    session = get_global_aiohttp_client()
    response: Any = await http.send(
        session,
        method,
        url,
        policy=retries.choose_policy(_max_connection_retries, is_starting=starting.is_set()),
        idempotent=_idempotent,
        bounded_s=_bounded_s,
        same_origin=_to_model,
        client=find_model_client(session) if _to_model else None,
        **kwargs,
    )
    return response  # type: ignore[no-any-return]  # a whole response behaves like aiohttp's


async def raise_for_status(response: ClientResponse, content: bytes | None = None) -> None:
    """Raise for an error status, with the body in `response_content`: `content`, if the caller has read it already."""
    if not response.ok:
        await replies.raise_error_status(response, content)


def read_failure(response: ClientResponse) -> Failure | None:
    """Return the failure as the first server that failed reports it, with the line of code; None if it is unknown."""
    return decode_failure(response.headers.get(HEADER))


async def get_response_json(response: ClientResponse) -> Any:
    """Return the parsed JSON body of `response`."""
    return await replies.read_json(response)


async def get_response_model(response: ClientResponse, kind: type[ModelT]) -> ModelT:
    """Return the body of `response` as a `kind`; raise ValueError if it is not one. Cheap within this process."""
    reply: Any = response
    if isinstance(reply, replies.ObjectResponse) and (value := reply.convert(kind)) is not None:
        return value
    return await replies.read_model(reply, kind)


class ServerClient(BaseModel):
    """Calls servers by their name in the config."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig
    _addresses: dict[str, call.ServerAddress] = PrivateAttr(default_factory=dict)
    _capture: dict[str, Any] | None = PrivateAttr(default=None)

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Return the head server's address from this process's config, or the default."""
        known = maybe_get_global_config_dict()
        if known is None:
            known = get_global_config_dict(GlobalConfigDictParserConfig(offline=True))
        return BaseServerConfig.model_validate(OmegaConf.to_container(known[HEAD_SERVER_KEY_NAME], resolve=True))

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> "ServerClient":
        """Return a client for the servers that a running head server knows."""
        where = head_server_config or cls.load_head_server_config()
        is_handed_down = head_server_config is None and NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME in os.environ
        # A head server in this process cannot be asked: a blocking call would stop its event loop.
        if is_handed_down or registry.is_in_this_process(where.host, where.port):
            return cls(head_server_config=where, global_config_dict=get_global_config_dict())
        return cls(head_server_config=where, global_config_dict=fetch_head_config(where))

    def _build_server_base_url(self, server_config_dict: DictConfig | dict[str, Any]) -> str:
        block: Any = OmegaConf.create(server_config_dict) if type(server_config_dict) is dict else server_config_dict
        return find_base_url(self.global_config_dict, block)

    def _find_address(self, server_name: str) -> call.ServerAddress:
        # Hot path: pydantic's own lookup of a private attribute takes ten times as long.
        addresses: dict[str, call.ServerAddress] = (self.__pydantic_private__ or {})["_addresses"]
        address = addresses.get(server_name)
        if address is None:
            block = get_first_server_config_dict(self.global_config_dict, server_name)
            address = find_server_address(self.global_config_dict, server_name, block, self._build_server_base_url)
            addresses[server_name] = address
        return address

    def _resolve_base_url(self, server_name: str) -> str:
        return self._find_address(server_name).base_url

    def _capture_settings(self) -> dict[str, Any]:
        """Return the capture settings, read once: every rollout asks several times."""
        private = self.__pydantic_private__ or {}
        known: dict[str, Any] | None = private["_capture"]
        if known is None:
            given = {name: self.global_config_dict.get(name) for name in ("observability_enabled", "token_id_capture")}
            plain: Any = OmegaConf.to_container(OmegaConf.create(given), resolve=True)
            known = private["_capture"] = plain
        return known or {}

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> ClientResponse:
        """Call a server. One in this process is called without a socket."""
        address = self._find_address(server_name)
        path = self._add_rollout_prefix(address, url_path) if address.is_observed else url_path
        hosted = registry.find_app(address.host, address.port)
        if hosted is None or not call.CALL_ARGUMENTS.issuperset(kwargs):
            if (headers := add_seconds_left(kwargs.get("headers"))) is not None:
                kwargs["headers"] = headers
            if address.token:
                kwargs["headers"] = {run_files.TOKEN_HEADER: address.token, **(kwargs.get("headers") or {})}
            if address.is_replicated:
                kwargs["headers"] = mark_own_call(kwargs.get("headers"))
                return await call_replica(self.head_server_config, server_name, method, path, **kwargs)
            return await request(method, f"{address.base_url}{path}", _internal=True, **kwargs)
        where = (address.host, address.port)
        reply: Any = await call.call_app(hosted, method, address.base_url, path, address=where, **kwargs)
        return reply  # type: ignore[no-any-return]  # behaves like aiohttp's

    def _add_rollout_prefix(self, address: call.ServerAddress, url_path: str) -> str:
        rollout_id = current_rollout_id()
        is_model_call = address.server_type == "responses_api_models" and url_path in _MODEL_ENDPOINTS
        if rollout_id is None or not (is_model_call or address.server_type == "resources_servers"):
            return url_path
        return f"{rollout_path_prefix(rollout_id)}{url_path}"

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> ClientResponse:
        """GET from a server."""
        return await self.request(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> ClientResponse:
        """POST to a server; a pydantic `json` is sent without its unset fields."""
        return await self.request(server_name, url_path, "POST", **kwargs)

    def poll_for_status(self, server_name: str, *, timeout_seconds: float = 5) -> ServerStatus:
        """Return whether a server answers at all within `timeout_seconds`."""
        if server_name == HEAD_SERVER_KEY_NAME:
            url = f"http://{self.head_server_config.host}:{self.head_server_config.port}"
        else:
            url = self._find_address(server_name).base_url
        return status_of(url, timeout_s=timeout_seconds)


def takes_models(client: Any) -> bool:
    """Return whether `client` may be given models in its JSON: a test double gets plain values to look at."""
    return type(client) is ServerClient


def setup_server_client(head_server_config: BaseServerConfig | None = None) -> ServerClient:
    """Return a client for the running servers, in a process whose HTTP session is ready."""
    client = ServerClient.load_from_global_config(head_server_config)
    get_global_aiohttp_client()
    return client


def get_server_url(server_name: str) -> str:
    """Return the base URL of a server of this process's config."""
    config = get_global_config_dict()
    return find_base_url(config, get_first_server_config_dict(config, server_name))


class BaseServer(QuickState):
    """Anything that listens on a port and has a config."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: BaseRunServerInstanceConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """Return the config of the instance that this process was started for."""
        return cls.config_of_instance(get_global_config_dict(), os.environ[INSTANCE_NAME_ENV])

    @classmethod
    def config_of_instance(cls, global_config_dict: DictConfig, name: str) -> BaseRunServerInstanceConfig:
        """Return the config of instance `name`, as the type that this class declares for it."""
        given = OmegaConf.to_container(get_first_server_config_dict(global_config_dict, name), resolve=True)
        assert isinstance(given, dict)
        declared: type[BaseRunServerInstanceConfig] = cls.model_fields["config"].annotation  # type: ignore[assignment]
        return declared.model_validate({**given, "name": name})

    def setup_liveness(self, app: FastAPI) -> None:
        """Add `GET /`, which says that the server is up."""

        async def liveness() -> dict[str, str]:
            """Say that the server runs."""
            return {"status": "ok"}

        app.get("/", include_in_schema=False)(liveness)


class SimpleServer(BaseServer):
    """A server of the three kinds, with its own app, a session cookie, and a client for the other servers."""

    ray_enabled: ClassVar[bool | None] = None
    """False says that the server never uses Ray, so that its process does not join the run's cluster."""
    _failure_kind: ClassVar[FailureKind] = "agent"

    server_client: ServerClient

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Return the app with this server's endpoints."""

    @staticmethod
    def new_app() -> FastAPI:
        """Return an app that calls plain JSON handlers directly."""
        return GymApp()

    def get_session_middleware_key(self) -> str:
        """Return the name of the session cookie."""
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give every request a session, kept in a cookie; a second call changes nothing."""
        if getattr(app.state, "nemo_gym_session_middleware_installed", False):
            return
        app.state.nemo_gym_session_middleware_installed = True
        key = self.get_session_middleware_key()
        # Anyone can guess the key. A server started by hand has nothing better to share with its replicas.
        app.state.nemo_gym_session_secret = secret = derive_run_secret(key) or key
        worker = this_worker()
        own = {"new_id": worker.peers.new_session_id} if worker and self.config.session_affinity else {}
        app.add_middleware(SessionCookieMiddleware, cookie_name=key, secret=secret, id_key=SESSION_ID_KEY, **own)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Turn errors into JSON, invalid bodies into a 422 and oversized ones into a 413."""
        app.add_exception_handler(
            RequestValidationError, make_validation_handler(lambda text: LOG.warning("%s: %s", self.config.name, text))
        )
        app.add_middleware(BodyLimit, limit_bytes=self.config.max_request_body_bytes)
        app.add_middleware(
            ErrorsAsJson,
            server_name=self.config.name,
            kind=self._failure_kind,
            server_class=type(self).__name__,
        )

    def setup_profiling(self, app: FastAPI, profiling_config: Any) -> None:
        """Profile every call; `GET /stats` writes the measurements so far."""
        from nemo_gym.profiling import Profiler  # yappi is installed only where someone profiles

        worker = this_worker()
        classes = [cls for cls in type(self).__mro__ if issubclass(cls, SimpleServer)]
        own_classes = [cls for cls in classes if not cls.__module__.startswith("nemo_gym.")]
        Profiler(
            name=self.config.name if worker is None else f"{self.config.name}.worker{worker.index}",
            base_profile_dir=profiling_config.profiling_results_dirpath,
            required_str=tuple(dict.fromkeys(str(Path(inspect.getfile(cls)).parent) for cls in own_classes)),
        ).attach(app)

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Raise this process's limit of open files as far as allowed, at least up to `target_soft_limit`."""
        allow_open_files(target_soft_limit)

    def prefix_server_logs(self) -> None:
        """Prefix every line this process prints with the instance name."""
        if not is_supervised():  # otherwise whoever reads the output knows whose it is
            prefix_output(self.config.name)

    def build_complete_app(self, global_config_dict: DictConfig) -> FastAPI:
        """Return the app with everything around its endpoints: MCP, liveness, errors, profiling."""
        app = self.setup_webserver()
        if getattr(self.config, "expose_tools_over_mcp", False):
            from nemo_gym.mcp_auto_exposure import maybe_auto_expose  # only servers that ask for it need it

            maybe_auto_expose(self, app)
        self.setup_liveness(app)
        if global_config_dict.get("profiling_enabled"):
            self.setup_profiling(app, global_config_dict)
        guard_replica_sessions(app, self.config.name, self.config.session_affinity)
        self.setup_exception_middleware(app)
        return app

    @classmethod
    def from_global_config(cls, global_config_dict: DictConfig, name: str) -> "SimpleServer":
        """Return instance `name` of this class, connected to the other servers of the config."""
        head_config = BaseServerConfig.model_validate(
            OmegaConf.to_container(global_config_dict[HEAD_SERVER_KEY_NAME], resolve=True)
        )
        client = ServerClient(head_server_config=head_config, global_config_dict=global_config_dict)
        return cls(config=cls.config_of_instance(global_config_dict, name), server_client=client)

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Run the instance that this process was started for, in several worker processes if its config says so.

        A caller that must not serve, such as a module that a worker imports again, gets the app instead.
        """
        global_config_dict = get_global_config_dict()
        name = os.environ[INSTANCE_NAME_ENV]
        config = cls.config_of_instance(global_config_dict, name)
        worker = this_worker()
        if global_config_dict.get("dry_run"):
            cls.from_global_config(global_config_dict, name)
            return None
        if not may_serve():
            return cls.from_global_config(global_config_dict, name).build_complete_app(global_config_dict)
        if worker is None and (config.num_workers or 1) > 1:
            sys.exit(run_workers(config, config.name, OmegaConf.to_yaml(global_config_dict)))
        if cls.ray_enabled is not False:
            join_named_cluster_if_used(global_config_dict)
        starting.set()
        server = cls.from_global_config(global_config_dict, name)
        server.set_ulimit()
        server.prefix_server_logs()
        app: ASGIApp = server.build_complete_app(global_config_dict)
        if worker is not None:
            app = server._add_affinity(app, worker)
        serve_instance(app, config, AccessRules.from_config(global_config_dict))
        return None

    def _add_affinity(self, app: Any, worker: workers.ServerWorker) -> ASGIApp:
        """Wrap `app` so that every request reaches the worker that holds its session."""
        if not self.config.session_affinity:
            return app  # type: ignore[no-any-return]
        cookie = session_cookie(app, self.get_session_middleware_key())
        read: dict[bytes, ReadSession] = {b"cookie": lambda header: cookie.session(header).get(SESSION_ID_KEY)}
        if getattr(self.config, "expose_tools_over_mcp", False):
            from nemo_gym.mcp_auto_exposure import session_by_header  # only servers that ask for it need it

            read = {**session_by_header(self), **read}
        return SessionAffinity(app, worker.peers, worker.peer_listener(), read)


class HeadServer(BaseServer):
    """Knows the config and the addresses of a run."""

    config: BaseServerConfig  # type: ignore[assignment]
    _server_instances: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _policy_version: RunVersion = PrivateAttr(default_factory=lambda: RunVersion(tell_servers))

    @classmethod
    def run_webserver(cls) -> tuple["uvicorn.Server", Thread, "HeadServer"]:
        """Serve in a daemon thread. To stop, the caller sets `should_exit` on the server."""
        config = get_global_config_dict()
        where = BaseServerConfig.model_validate(OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True))
        head_server = cls(config=where)
        access = AccessRules.from_config(config)
        return *serve_in_thread(head_server.setup_webserver(), where, access, HEAD_SERVER_KEY_NAME), head_server

    def setup_webserver(self) -> FastAPI:
        """Return the app, and save its token (the config's access token or a new one) in the user's token file."""
        access = AccessRules.from_config(maybe_get_global_config_dict() or {})
        token = run_files.create_token(run_token_path(self.config), access.token)
        return build_head_app(self.global_config_dict_yaml, self.get_server_instances, token, self.policy_version)

    @property
    def policy_version(self) -> RunVersion:
        """The version of the policy's weights, and the servers to tell about a new one."""
        return self._policy_version

    def global_config_dict_yaml(self, with_secrets: bool = True) -> str:
        """Return the run's config as YAML, with interpolations unresolved."""
        config = get_global_config_dict()
        if not with_secrets:
            config = config.copy()
            recursively_hide_secrets(config)
        return OmegaConf.to_yaml(config)

    def set_server_instances(self, instances: list[dict[str, Any]]) -> None:
        """Set the list of servers in the run."""
        self._server_instances = instances
        self._policy_version.note_instances(instances)

    def get_server_instances(self) -> list[dict[str, Any]]:
        """Return the list of servers in the run."""
        return self._server_instances


def initialize_ray() -> None:
    """Join the run's Ray cluster, or start a local one and put its address into the config. Repeat calls do nothing."""
    join_or_start_cluster(get_global_config_dict())


def maybe_ray_cluster_exit() -> None:
    """Stop the local Ray cluster if this process started one."""
    stop_own_cluster()
