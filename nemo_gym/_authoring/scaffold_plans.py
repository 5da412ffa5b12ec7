# SPDX-License-Identifier: Apache-2.0
"""Which files make up a new server, environment or benchmark, and how they are written.

They are read from the templates of this package, filled in, and written without overwriting. In a template `@@KEY@@`
stands for a value, in paths too; `dot_x.tmpl` becomes `.x`.
"""

import contextlib
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import yaml

from nemo_gym._authoring.environment_manifest import EnvironmentManifest, Profile, Reward, render_manifest
from nemo_gym._config.server_types import Domain
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym.errors import GymError

Kind = Literal["environment", "benchmark"]
FOLDERS: dict[Kind, str] = {"environment": "environments", "benchmark": "benchmarks"}
_EXAMPLE = PurePosixPath("data/example.jsonl")
_PROMPT = {"user": "{question}"}


@dataclass(frozen=True)
class NewFile:
    """A file to be written, relative to the folder in which the user works."""

    path: PurePosixPath
    content: str


@dataclass(frozen=True)
class Verifier:
    """The resources server that scores: a new one, or one that is there."""

    name: str
    instance: str
    """Its name in its config."""
    config_path: str
    domain: str
    agent: str
    """The agent of its config."""
    agent_impl: str
    rows: Sequence[dict[str, Any]]
    """Some of its example rows."""
    new_files: Sequence[NewFile] = ()


@dataclass(frozen=True)
class Collection:
    """What to make: an environment or a benchmark."""

    kind: Kind
    name: str
    profile: Profile
    reward: Reward

    @property
    def folder(self) -> str:
        return f"{FOLDERS[self.kind]}/{self.name}"


def plan_resources_server(name: str) -> list[NewFile]:
    """Return a resources server with its agent, data and tests, whose verifier is still to be written."""
    return render_template("resources_server", f"resources_servers/{name}", _fill_names(name))


def plan_model_server(name: str) -> list[NewFile]:
    """Return a model server in front of a provider's endpoint, with its tests."""
    return render_template("model_server", f"responses_api_models/{name}", _fill_names(name))


def plan_new_verifier(name: str) -> Verifier:
    """Return the worked example, a resources server with a tool and a verifier, as the verifier of something."""
    files = render_template("worked_example", f"resources_servers/{name}", _fill_names(name))
    example = next(file for file in files if file.path.match(str(_EXAMPLE)))
    return Verifier(
        name=name,
        instance=f"{name}_resources_server",
        config_path=f"resources_servers/{name}/configs/{name}.yaml",
        domain="other",
        agent=f"{name}_simple_agent",
        agent_impl="simple_agent",
        rows=[json.loads(line) for line in example.content.splitlines()],
        new_files=files,
    )


def plan_collection(asked: Collection, verifier: Verifier) -> list[NewFile]:
    """Return all files of an environment or benchmark, and of what it needs that is not there yet."""
    agent = _choose_agent_name(asked, verifier)
    values = {**_fill_names(asked.name), "VERIFIER": verifier.name, "AGENT": agent}
    folder = PurePosixPath(asked.folder)
    has_prompt = asked.kind == "benchmark" and bool(verifier.new_files)
    datasets = _plan_datasets(asked, has_prompt)
    files = [
        *render_template(asked.kind, asked.folder, values),
        NewFile(folder / "manifest.yaml", render_manifest(_make_manifest(asked, verifier, agent, datasets))),
        NewFile(folder / "config.yaml", _write_config(asked, verifier, agent, datasets)),
        NewFile(folder / _EXAMPLE, _dump_lines(verifier.rows)),
        *verifier.new_files,
    ]
    if asked.kind == "benchmark":
        source = [_to_source_row(row) for row in verifier.rows] if has_prompt else verifier.rows
        files.append(NewFile(folder / "data" / "source.jsonl", _dump_lines(source)))
    if has_prompt:
        files.append(NewFile(folder / "prompt.yaml", _dump_yaml({**_read_system_prompt(verifier.rows), **_PROMPT})))
    if asked.profile == "custom-gym-agent-loop":
        files += render_template("agent", f"responses_api_agents/{asked.name}_agent", _fill_names(asked.name))
    return files


def _fill_names(name: str) -> dict[str, str]:
    return {"NAME": name, "CLASS": make_class_prefix(name)}


def _choose_agent_impl(asked: Collection, verifier: Verifier) -> str:
    if asked.profile == "custom-gym-agent-loop":
        return f"{asked.name}_agent"
    return "remote_agent" if asked.profile == "external-agent-loop" else verifier.agent_impl


def _choose_agent_name(asked: Collection, verifier: Verifier) -> str:
    impl = _choose_agent_impl(asked, verifier)
    if impl == f"{asked.name}_agent":
        return impl
    return f"{asked.name}_{impl}" if verifier.name == asked.name else f"{asked.name}_{verifier.name}_{impl}"


def _plan_datasets(asked: Collection, has_prompt: bool) -> list[dict[str, Any]]:
    if asked.kind == "environment":
        path = f"{asked.folder}/{_EXAMPLE}"
        return [{"name": "example", "type": "example", "jsonl_fpath": path, "num_repeats": 1, "license": "Apache 2.0"}]
    return [
        {
            "name": asked.name,
            "type": "benchmark",
            "jsonl_fpath": f"{asked.folder}/data/{asked.name}_benchmark.jsonl",
            "prepare_script": f"{asked.folder}/prepare.py",
            **({"prompt_config": f"{asked.folder}/prompt.yaml"} if has_prompt else {}),
            "num_repeats": 1,
        }
    ]


def _write_config(asked: Collection, verifier: Verifier, agent: str, datasets: list[dict[str, Any]]) -> str:
    """Return the config: the verifier's own, with its agent in another shape and with rows of its own."""
    impl = _choose_agent_impl(asked, verifier)
    block: dict[str, Any] = {"datasets": datasets}
    if impl == verifier.agent_impl:
        # To inherit moves the verifier's agent here, so that there is one agent and not two.
        inherited = {} if agent == verifier.agent else {"_inherit_from": verifier.agent}
        instance: dict[str, Any] = {**inherited, "responses_api_agents": {impl: block}}
        return _dump_yaml({"config_paths": [verifier.config_path], agent: instance})
    refs: dict[str, Any] = {"resources_server": {"type": "resources_servers", "name": verifier.instance}}
    if impl == "remote_agent":
        refs["agent_base_url"] = "${agent_base_url}"
    else:
        refs["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    instance = {"responses_api_agents": {impl: {"entrypoint": "app.py", **refs, **block}}}
    # `_delete_key` empties the verifier's own agent out of the config: this one takes its place.
    unused = {verifier.agent: {"_delete_key": "responses_api_agents"}}
    return _dump_yaml({"config_paths": [verifier.config_path], **unused, agent: instance})


def _make_manifest(
    asked: Collection, verifier: Verifier, agent: str, datasets: list[dict[str, Any]]
) -> EnvironmentManifest:
    driven = asked.profile == "external-rollout-driver"
    return EnvironmentManifest(
        name=asked.name,
        kind=asked.kind,
        integration_profile=asked.profile,
        domain=Domain(verifier.domain),
        description=f"Tasks that are scored by {verifier.name}",
        reward=asked.reward,
        resources_server=verifier.instance,
        agent_server=None if driven else agent,
        model_server="policy_model",
        datasets=[{key: dataset[key] for key in ("name", "type", "jsonl_fpath")} for dataset in datasets],
    )


def _to_source_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose prompt is still to be written: the question as a field, everything else as it is."""
    params = dict(row["responses_create_params"])
    question = params.pop("input")[-1]["content"]
    return {"question": question, **row, "responses_create_params": params}


def _read_system_prompt(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    first = rows[0]["responses_create_params"]["input"][0]
    # Braces are fields of a prompt template unless they are doubled.
    text = first["content"].replace("{", "{{").replace("}", "}}")
    return {"system": text} if first["role"] == "system" else {}


def _dump_lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _dump_yaml(content: dict[str, Any]) -> str:
    return f"# SPDX-License-Identifier: Apache-2.0\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"


# --- names of new servers and environments ----------------------------------------------------------------------------


_NAME = re.compile(r"[a-z][a-z0-9_]*")


class BadName(GymError, ValueError):
    """A name that cannot be the name of a Python package."""


def check_name(name: str) -> str:
    """Return `name` if it can name a server: it becomes a folder, a Python package and part of config keys."""
    if _NAME.fullmatch(name) and not keyword.iskeyword(name):
        return name
    meant = _repair(name)
    hint = f"\nhint: {meant!r} would do" if meant else ""
    raise BadName(
        f"{name!r} cannot name a server: lower-case letters, digits and '_' are allowed, beginning with a letter, "
        f"and Python's own words are not.{hint}"
    )


def make_class_prefix(name: str) -> str:
    """Turn `my_server` into `MyServer`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _repair(name: str) -> str | None:
    """Return the nearest name that is allowed: `My-Server`, `MyServer` and `my server` are all `my_server`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    joined = re.sub(r"[^a-z0-9]+", "_", words).strip("_").lstrip("0123456789_")
    meant = f"{joined}_env" if keyword.iskeyword(joined) else joined
    return meant if _NAME.fullmatch(meant) else None


# --- files ------------------------------------------------------------------------------------------------------------


class ScaffoldError(GymError):
    """A scaffold cannot be written."""


def render_template(template: str, folder: str, values: Mapping[str, str]) -> list[NewFile]:
    """Return the files of `template`, filled in with `values`, as files of `folder`."""
    root = Path(__file__).parent / "templates" / template

    def fill_in(text: str) -> str:
        return re.sub(r"@@(\w+)@@", lambda match: values[match[1]], text)

    files = []
    for source in root.rglob("*.tmpl"):
        inner = source.relative_to(root).with_suffix("")
        name = f".{inner.name.removeprefix('dot_')}" if inner.name.startswith("dot_") else inner.name
        path = PurePosixPath(folder, fill_in(inner.with_name(name).as_posix()))
        files.append(NewFile(path, fill_in(source.read_text(encoding="utf-8"))))
    return sorted(files, key=lambda file: file.path)


def write_missing(root: Path, files: Sequence[NewFile]) -> list[PurePosixPath]:
    """Write those of `files` that are not there; if one is there with another content, write nothing at all."""
    conflicts = [file.path for file in files if _differs(root / file.path, file.content)]
    if conflicts:
        listed = "\n".join(f"  {path}" for path in conflicts)
        raise ScaffoldError(
            f"these files are there already, with another content; nothing was written:\n{listed}\n"
            "hint: choose another name, or move them away"
        )
    written = list[PurePosixPath]()
    try:
        for file in files:
            if not (root / file.path).exists():
                write_atomically(root / file.path, file.content)
                written.append(file.path)
    except OSError as error:
        _take_back(root, written)
        raise ScaffoldError(f"cannot write {error.filename or file.path}: {error.strerror}") from error
    return written


def _differs(path: Path, content: str) -> bool:
    try:
        return path.is_dir() or path.read_bytes() != content.encode()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ScaffoldError(f"cannot read {path}: {error.strerror}") from error


def _take_back(root: Path, written: Sequence[PurePosixPath]) -> None:
    """Remove what a failed attempt has written, and the folders that it left empty."""
    for path in written:
        (root / path).unlink(missing_ok=True)
    for folder in sorted({parent for path in written for parent in path.parents}, key=str, reverse=True):
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
