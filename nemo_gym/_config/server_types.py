# SPDX-License-Identifier: Apache-2.0
"""The shape of a server block: its three kinds, references between them, and the check that a block is valid.

Which blocks of a config are servers, and whether references lead anywhere, is decided in `servers.py`.
"""

import warnings
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from nemo_gym._config.dataset_types import AnyDatasetConfig, BenchmarkDatasetConfig, DatasetConfig

ServerType = Literal["responses_api_models", "resources_servers", "responses_api_agents"]
SERVER_TYPES: tuple[ServerType, ...] = ("responses_api_models", "resources_servers", "responses_api_agents")


class Domain(str, Enum):  # noqa: UP042  `str(Domain.MATH)` is part of the contract
    """What an environment trains or measures.

    One of `math`, `coding`, `agent`, `knowledge`, `instruction_following`, `long_context`, `safety`, `games`,
    `translation`, `e2e`, `rlhf` and `other`.
    """

    MATH = "math"
    CODING = "coding"
    AGENT = "agent"
    KNOWLEDGE = "knowledge"
    INSTRUCTION_FOLLOWING = "instruction_following"
    LONG_CONTEXT = "long_context"
    SAFETY = "safety"
    GAMES = "games"
    TRANSLATION = "translation"
    E2E = "e2e"
    RLHF = "rlhf"
    OTHER = "other"


class ModelServerRef(BaseModel):
    """Points to a model server by its instance name."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Points to a resources server by its instance name."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Points to an agent server by its instance name."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = Annotated[ModelServerRef | ResourcesServerRef | AgentServerRef, Field(discriminator="type")]
ServerRefTypeAdapter: TypeAdapter[ModelServerRef | ResourcesServerRef | AgentServerRef] = TypeAdapter(ServerRef)


def is_server_ref(value: Any) -> ModelServerRef | ResourcesServerRef | AgentServerRef | None:
    """Return `value` as a server reference, or None when it is not shaped like one."""
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    try:
        return ServerRefTypeAdapter.validate_python(plain)
    except ValidationError:
        return None


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    # Subclasses inherit this: a value that does not fit may be an API key, or stand beside one.
    model_config = ConfigDict(hide_input_in_errors=True)

    host: str
    """Host it listens on; by default the top-level key `default_host`."""
    port: int
    """Port it listens on; by default a free one."""
    num_workers: int | None = None
    """How many processes share its work; None: one."""


class BaseRunServerConfig(BaseServerConfig):
    """Config of every server that this package starts."""

    entrypoint: str
    """The file that starts it, relative to the implementation's folder: `app.py`."""
    domain: Domain | None = None
    """What an environment trains or measures: `math`, `coding`, `agent` and so on; resources servers only."""


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """The config that a running server is built with; `name` is its instance name in the global config."""

    name: str
    """The name of the instance, by which others call it: the key of its block, not a field in it."""
    max_request_body_bytes: int = Field(default=256 * 2**20, gt=0)
    """A request with a larger body is refused with 413 before it is read into memory."""
    session_affinity: bool = True
    """With `num_workers` or `num_replicas` > 1: all requests of a session reach the worker or replica that began it.

    False for stateless servers.
    """
    requirements: list[str] = Field(default_factory=list)
    """Packages that this instance needs besides those of its folder, as in a requirements.txt: `["my-env==1.2"]`.

    It then runs in a virtual environment that has them. Paths are relative to the server's folder.
    """
    run_once: bool = False
    """With `gym eval run --workers`: run one server for all workers, called over HTTP, instead of one in each."""


class RayPlacementConfig(BaseModel):
    """Settings of a server with `placement: ray`, in its block, for the nodes that it runs on."""

    model_config = ConfigDict(hide_input_in_errors=True)

    num_replicas: int = Field(default=1, ge=1)
    """How many actors share the work. All requests of a session reach the replica that began it."""
    num_cpus: float = Field(default=0.001, ge=0)
    """CPUs that Ray reserves for each replica: by default next to nothing, as with 0 Ray does not spread replicas."""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs that Ray reserves for each replica, which sees only those."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Custom resources of the cluster that each replica needs, by name."""
    node_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have, as in `ray start --labels`. Values may be Ray's expressions, such as `in(a,b)`."""
    max_restarts: int = Field(default=3, ge=-1)
    """How many times Ray restarts a replica that was lost, alone or with its node; -1: without limit."""


class BaseRunServerTypeConfig(BaseRunServerConfig):
    """A server's block as written in a config: host and port may be unset, and the server's own keys are kept."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    host: str | None = None  # type: ignore[assignment]  # open until defaults are filled in
    port: int | None = None  # type: ignore[assignment]  # open until defaults are filled in
    datasets: list[AnyDatasetConfig] | None = None


_OneImplementation = Annotated[dict[str, BaseRunServerTypeConfig], Field(min_length=1, max_length=1)]


class _ServerTypeConfig(BaseModel):
    """One server type that holds one implementation."""

    # Only code that reads a whole config needs these schemas; a server gets its own block.
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, defer_build=True)

    SERVER_TYPE: ClassVar[ServerType]

    @model_validator(mode="before")
    @classmethod
    def check_single_server_type(cls, data: Any) -> Any:
        found = list_server_types(data)
        if len(found) > 1:
            raise ValueError(
                f"an instance is one server, but this one has {len(found)} server types: {', '.join(found)}"
            )
        return data

    @field_validator("responses_api_models", "responses_api_agents", mode="before", check_fields=False)
    @classmethod
    def drop_domain(cls, implementations: Any) -> Any:
        """Drop `domain` where it is not ours: only resources servers have one, others may use the key as they like."""
        if not isinstance(implementations, Mapping):
            return implementations
        kept = dict(implementations)
        for name, config in kept.items():
            if isinstance(config, Mapping):
                kept[name] = {key: value for key, value in config.items() if key != "domain"}
        return kept


class ResponsesAPIModelServerTypeConfig(_ServerTypeConfig):
    """A model server block."""

    SERVER_TYPE: ClassVar[ServerType] = "responses_api_models"

    responses_api_models: _OneImplementation


class ResourcesServerTypeConfig(_ServerTypeConfig):
    """A resources server block."""

    SERVER_TYPE: ClassVar[ServerType] = "resources_servers"

    resources_servers: _OneImplementation


class ResponsesAPIAgentServerTypeConfig(_ServerTypeConfig):
    """An agent server block."""

    SERVER_TYPE: ClassVar[ServerType] = "responses_api_agents"

    responses_api_agents: _OneImplementation


class _ServerInstance(_ServerTypeConfig):
    """A named server block, with the part of the global config it was read from."""

    name: str
    server_type_config_dict: DictConfig = Field(exclude=True)

    def get_server_ref(self) -> ModelServerRef | ResourcesServerRef | AgentServerRef:
        return ServerRefTypeAdapter.validate_python({"type": self.SERVER_TYPE, "name": self.name})

    def get_inner_run_server_config_dict(self) -> DictConfig:
        """Return the implementation's block in the global config, interpolations and all."""
        inner: DictConfig = next(iter(self.server_type_config_dict[self.SERVER_TYPE].values()))
        return inner

    def get_inner_run_server_config(self) -> BaseRunServerTypeConfig:
        implementations: dict[str, BaseRunServerTypeConfig] = getattr(self, self.SERVER_TYPE)
        return next(iter(implementations.values()))

    @property
    def datasets(self) -> list[DatasetConfig | BenchmarkDatasetConfig] | None:
        return self.get_inner_run_server_config().datasets


class ResponsesAPIModelServerInstanceConfig(_ServerInstance, ResponsesAPIModelServerTypeConfig):
    """A model server of a config."""


class ResourcesServerInstanceConfig(_ServerInstance, ResourcesServerTypeConfig):
    """A resources server of a config."""


class ResponsesAPIAgentServerInstanceConfig(_ServerInstance, ResponsesAPIAgentServerTypeConfig):
    """An agent server of a config."""


ServerInstance = (
    ResponsesAPIModelServerInstanceConfig | ResourcesServerInstanceConfig | ResponsesAPIAgentServerInstanceConfig
)


def list_server_types(value: Any) -> list[ServerType]:
    """Return the server types among the keys of `value`; empty for anything that is not a mapping."""
    if not isinstance(value, Mapping | DictConfig):
        return []
    return [kind for kind in SERVER_TYPES if kind in value]


def _server_type_tag(value: Any) -> str | None:
    if isinstance(value, _ServerTypeConfig):
        return value.SERVER_TYPE
    return next(iter(list_server_types(value)), None)


# The tag selects one member, so that a mistake is reported once rather than once per kind of server.
ServerInstanceConfig = Annotated[
    Annotated[ResponsesAPIModelServerInstanceConfig, Tag("responses_api_models")]
    | Annotated[ResourcesServerInstanceConfig, Tag("resources_servers")]
    | Annotated[ResponsesAPIAgentServerInstanceConfig, Tag("responses_api_agents")],
    Discriminator(_server_type_tag),
]
ServerInstanceConfigTypeAdapter: TypeAdapter[ServerInstance] = TypeAdapter(
    ServerInstanceConfig, config=ConfigDict(defer_build=True)
)


def validate_server_instance(name: str, values: Any, block: DictConfig) -> ServerInstance:
    """Validate `values`, the plain form of `block`, as a server instance; raise pydantic's ValidationError."""
    data = values
    if isinstance(values, Mapping):
        data = {**values, "name": name, "server_type_config_dict": block}
    with warnings.catch_warnings():
        # Code that reads the datasets warns about deprecated keys; detection looks at every block.
        warnings.simplefilter("ignore", DeprecationWarning)
        return ServerInstanceConfigTypeAdapter.validate_python(data)


def maybe_get_server_instance_config(
    name: str, server_type_config_dict: Any
) -> tuple[ServerInstance | None, ValidationError | None]:
    """Return the block as a server instance, or why it is not one."""
    if OmegaConf.is_config(server_type_config_dict):
        block = server_type_config_dict
        values = OmegaConf.to_container(block, resolve=True)
    else:
        values = server_type_config_dict
        block = OmegaConf.create({})
        if isinstance(values, dict):
            block = OmegaConf.create(values)
    try:
        return validate_server_instance(name, values, block), None
    except ValidationError as error:
        return None, error


def is_almost_server(value: Any) -> bool:
    """Return whether `value` was meant to be a server: it has a server type, and an entrypoint below it."""
    return any(
        isinstance(inner, Mapping | DictConfig) and "entrypoint" in inner
        for kind in list_server_types(value)
        if isinstance(value[kind], Mapping | DictConfig)
        for inner in value[kind].values()
    )
