# SPDX-License-Identifier: Apache-2.0
"""What a server block of a config is: its three kinds, references between them, and the check that one is valid.

Only shapes are described here. Which blocks of a whole config are servers, and whether references lead anywhere,
is decided in `servers.py`.
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

    # Of this class and those built on it: a value that does not fit may be a key, or stand beside one.
    model_config = ConfigDict(hide_input_in_errors=True)

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """What every server that this package starts has in its config."""

    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """The config a running server is built with; `name` is its instance name in the global config."""

    name: str
    max_request_body_bytes: int = Field(default=256 * 2**20, gt=0)
    """A request with a larger body is refused with 413 before it is read into memory."""
    session_affinity: bool = True
    """With `num_workers` > 1: all requests of a session reach the worker that began it. False for stateless servers."""


class BaseRunServerTypeConfig(BaseRunServerConfig):
    """A server's block as written in a config: host and port may still be open, the server's own keys are kept."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    host: str | None = None  # type: ignore[assignment]  # open until defaults are filled in
    port: int | None = None  # type: ignore[assignment]  # open until defaults are filled in
    datasets: list[AnyDatasetConfig] | None = None


_OneImplementation = Annotated[dict[str, BaseRunServerTypeConfig], Field(min_length=1, max_length=1)]


class _ServerTypeConfig(BaseModel):
    """One server type that holds one implementation."""

    # Only who reads a whole config needs these schemas; a server is handed its own block.
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, defer_build=True)

    SERVER_TYPE: ClassVar[ServerType]

    @model_validator(mode="before")
    @classmethod
    def check_single_server_type(cls, data: Any) -> Any:
        found = server_types_in(data)
        if len(found) > 1:
            raise ValueError(
                f"an instance is one server, but this one has {len(found)} server types: {', '.join(found)}"
            )
        return data


def _drop_domain(implementations: Any) -> Any:
    """Only resources servers have a domain: elsewhere the key is left to the server's own config class."""
    if not isinstance(implementations, Mapping):
        return implementations
    return {
        name: {key: value for key, value in config.items() if key != "domain"}
        if isinstance(config, Mapping)
        else config
        for name, config in implementations.items()
    }


class ResponsesAPIModelServerTypeConfig(_ServerTypeConfig):
    """A model server block."""

    SERVER_TYPE: ClassVar[ServerType] = "responses_api_models"

    responses_api_models: _OneImplementation

    @field_validator("responses_api_models", mode="before")
    @classmethod
    def drop_domain(cls, value: Any) -> Any:
        return _drop_domain(value)


class ResourcesServerTypeConfig(_ServerTypeConfig):
    """A resources server block."""

    SERVER_TYPE: ClassVar[ServerType] = "resources_servers"

    resources_servers: _OneImplementation


class ResponsesAPIAgentServerTypeConfig(_ServerTypeConfig):
    """An agent server block."""

    SERVER_TYPE: ClassVar[ServerType] = "responses_api_agents"

    responses_api_agents: _OneImplementation

    @field_validator("responses_api_agents", mode="before")
    @classmethod
    def drop_domain(cls, value: Any) -> Any:
        return _drop_domain(value)


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


def server_types_in(value: Any) -> list[ServerType]:
    """Return the server types among the keys of `value`; empty for anything that is not a mapping."""
    return [kind for kind in SERVER_TYPES if kind in value] if isinstance(value, Mapping | DictConfig) else []


def _server_type_tag(value: Any) -> str | None:
    if isinstance(value, _ServerTypeConfig):
        return value.SERVER_TYPE
    return next(iter(server_types_in(value)), None)


# The tag picks one member up front: a mistake is reported once, not once per kind of server.
ServerInstanceConfig = Annotated[
    Annotated[ResponsesAPIModelServerInstanceConfig, Tag("responses_api_models")]
    | Annotated[ResourcesServerInstanceConfig, Tag("resources_servers")]
    | Annotated[ResponsesAPIAgentServerInstanceConfig, Tag("responses_api_agents")],
    Discriminator(_server_type_tag),
]
ServerInstanceConfigTypeAdapter: TypeAdapter[
    ResponsesAPIModelServerInstanceConfig | ResourcesServerInstanceConfig | ResponsesAPIAgentServerInstanceConfig
] = TypeAdapter(ServerInstanceConfig, config=ConfigDict(defer_build=True))


def validate_server_instance(
    name: str, values: Any, block: DictConfig
) -> ResponsesAPIModelServerInstanceConfig | ResourcesServerInstanceConfig | ResponsesAPIAgentServerInstanceConfig:
    """Validate `values`, the plain form of `block`, as a server instance; raises pydantic's ValidationError."""
    data = {**values, "name": name, "server_type_config_dict": block} if isinstance(values, Mapping) else values
    with warnings.catch_warnings():
        # Whoever reads the datasets hears about deprecated keys; detection looks at every block of every config.
        warnings.simplefilter("ignore", DeprecationWarning)
        return ServerInstanceConfigTypeAdapter.validate_python(data)


def maybe_get_server_instance_config(
    name: str, server_type_config_dict: Any
) -> tuple[
    ResponsesAPIModelServerInstanceConfig
    | ResourcesServerInstanceConfig
    | ResponsesAPIAgentServerInstanceConfig
    | None,
    ValidationError | None,
]:
    """Return the block as a server instance, or why it is not one."""
    if OmegaConf.is_config(server_type_config_dict):
        block = server_type_config_dict
        values = OmegaConf.to_container(block, resolve=True)
    else:
        values = server_type_config_dict
        block = OmegaConf.create(values) if isinstance(values, dict) else OmegaConf.create({})
    try:
        return validate_server_instance(name, values, block), None
    except ValidationError as error:
        return None, error


def is_almost_server(value: Any) -> bool:
    """Return whether `value` was meant as a server: it has a server type, and something below it has an entrypoint."""
    return any(
        isinstance(inner, Mapping | DictConfig) and "entrypoint" in inner
        for kind in server_types_in(value)
        if isinstance(value[kind], Mapping | DictConfig)
        for inner in value[kind].values()
    )
