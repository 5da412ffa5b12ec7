# SPDX-License-Identifier: Apache-2.0
"""Generate the page of HTTP endpoints from the OpenAPI documents of one server of each kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from nemo_gym._servers.head_app import build_head_app
from nemo_gym._servers.policy_versions.announcing import RunVersion
from nemo_gym.session_gateway import SessionGatewayConfig
from nemo_gym.testing import agent_config, build_server
from resources_servers.blackjack.app import BlackjackResourcesServer
from resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmtResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.openai_model.app import SimpleModelServer
from scripts.reference.markdown import write_code, write_table

INTRODUCTION = """\
# HTTP endpoints

Each server listens on its own port, answers with JSON, and describes itself at `/openapi.json`. The tables are
generated from that, for one server of each kind. A session is a cookie: a client that keeps cookies, such as
[`ServerClient`](../guides/call-servers.md), stays in the session that `/seed_session` or its first call started.
"""
ABOUT = {
    "Head server": "One per run, at `head_server` (127.0.0.1:11000). It knows all other servers.",
    "Resources servers": (
        "The endpoints that all resources servers have come first, then the environment's tools; these are "
        "the tools of `example_session_state_mgmt`."
    ),
    "Step by step environments": (
        "Resources servers for `gymnasium_agent` have two more. They are not tools: the agent calls them."
    ),
    "Agent servers": "`POST /run` is one rollout: it takes a dataset row and returns the scored row.",
    "Model servers": (
        "Three dialects for every model, and [sessions](../guides/train-with-a-gateway.md), which record the calls of "
        "any program."
    ),
}
# Each dialect's handler parses its own request, so OpenAPI does not describe it.
DIALECTS = {
    "/v1/responses": "Answer in OpenAI's Responses format.",
    "/v1/chat/completions": "Answer in OpenAI's Chat Completions format.",
    "/v1/messages": "Answer in Anthropic's Messages format.",
}
_METHODS = ("get", "post", "put", "delete")
# FastAPI's schemas for rejected bodies.
_NOT_OURS = ("HTTPValidationError", "ValidationError")


def write_page() -> str:
    """Write the page."""
    parts = [INTRODUCTION]
    schemas = dict[str, Any]()
    for title, document in describe_servers().items():
        parts += [f"## {title}\n", f"{ABOUT[title]}\n", _write_paths(document)]
        schemas |= {name: document["components"]["schemas"][name] for name in _list_schemas(document)}
    parts.append("## Bodies\n")
    parts += [_write_schema(name, schemas[name]) for name in sorted(schemas) if name not in _NOT_OURS]
    return "\n".join(parts)


def describe_servers() -> dict[str, dict[str, Any]]:
    """Build a server of each kind and return its OpenAPI document, by title."""
    head = build_head_app(lambda with_secrets: "", list, None, RunVersion(_announce_nothing))
    endpoint = {"openai_base_url": "http://127.0.0.1:1", "openai_api_key": "none", "openai_model": "none"}
    servers = {
        "Resources servers": build_server(ExampleSessionStateMgmtResourcesServer),
        "Step by step environments": build_server(BlackjackResourcesServer),
        "Agent servers": build_server(SimpleAgent, **agent_config("counter")),
        "Model servers": build_server(SimpleModelServer, session_gateway=SessionGatewayConfig(), **endpoint),
    }
    config = OmegaConf.create({})
    return {"Head server": head.openapi()} | {
        title: server.build_complete_app(config).openapi() for title, server in servers.items()
    }


async def _announce_nothing(*args: Any) -> Any:
    return []


def _write_paths(document: Mapping[str, Any]) -> str:
    rows = [
        (
            write_code(f"{method.upper()} {path}"),
            describe_operation(path, operation),
            _name_schema(operation.get("requestBody", {})),
            _name_schema(operation["responses"].get("200", {})),
        )
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in _METHODS
    ]
    return write_table(("endpoint", "what", "body", "answer"), rows)


def describe_operation(path: str, operation: Mapping[str, Any]) -> str:
    """Return what an endpoint does; raise KeyError if it has no docstring."""
    if operation.get("description"):
        return str(operation["description"]).split("\n\n")[0]
    sessions, _, dialect = path.rpartition("/v1/")
    return DIALECTS[f"/v1/{dialect}"] + (" The session records the call." if sessions else "")


def _get_schema(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = holder.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _name_schema(holder: Mapping[str, Any]) -> str:
    schema = _get_schema(holder)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    return write_code(_write_type(schema)) if schema else ""


def _list_schemas(document: Mapping[str, Any]) -> Iterator[str]:
    for operations in document["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                for holder in (operation.get("requestBody", {}), operation["responses"].get("200", {})):
                    if "$ref" in (schema := _get_schema(holder)):
                        yield schema["$ref"].rpartition("/")[2]


def _write_schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            write_code(field),
            write_code(_write_type(about)),
            "yes" if field in required else "",
            about.get("description", ""),
        )
        for field, about in schema.get("properties", {}).items()
    ]
    more = "\nExtra fields are kept.\n" if schema.get("additionalProperties") else ""
    about = f"{schema['description']}\n\n" if schema.get("description") else ""
    table = write_table(("field", "type", "required", "what"), rows) if rows else ""
    return f"### {name}\n\n{about}{table}{more}"


def _write_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        kinds = list(dict.fromkeys(_write_type(member) for member in members))
        return " | ".join(kinds) if len(kinds) <= 4 else f"{' | '.join(kinds[:3])} | …"
    if "const" in schema or "enum" in schema:
        return " | ".join(map(repr, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list[{_write_type(schema.get('items', {}))}]"
    return str(schema.get("type", "any"))
