# SPDX-License-Identifier: Apache-2.0
"""GitLab's flavour of a model registry for tests, in front of a real MLflow server that keeps everything.

What GitLab does differently, as its documentation of the MLflow client and of the model registry API has it: routes
below a project, a token, versions by the tag `gitlab.version` that cannot be made twice, runs that belong to versions,
files as packages that are handed out by a redirect to an object store. Faults are switched on by a test.
"""

import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import requests

TOKEN = "glpat-the-secret-token"
PROJECT = "/api/v4/projects/42"
_NOT_THERE = {"error_code": "RESOURCE_DOES_NOT_EXIST"}
_FORWARDED = ("Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified")


@dataclass
class Faults:
    """What goes wrong."""

    cut_downloads: list[int] = field(default_factory=list)
    """For the next downloads in turn: how many bytes come before the connection breaks."""
    cut_uploads: int = 0
    """So many uploads are cut off before the file is stored."""
    refusals: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    """By endpoint or file name: an answer in the place of the real one."""
    busy: dict[str, int] = field(default_factory=dict)
    """By endpoint or file name: how often it is `503` before it works."""
    no_ranges: bool = False
    no_validators: bool = False
    damage: bool = False
    """Files come back with another first byte."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, gitlab: "GitlabProxy") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.gitlab = gitlab

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is what some tests are about."""


class GitlabProxy:
    """`with GitlabProxy(mlflow_url) as gitlab: gitlab.uri`"""

    def __init__(self, mlflow_url: str) -> None:
        self.mlflow = mlflow_url
        self.faults = Faults()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of everything that was asked."""
        self._of_thread = threading.local()
        self._server = _Server(self)
        self.port = self._server.server_address[1]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        return f"{self.origin}{PROJECT}/ml/mlflow"

    @property
    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.requests]

    def __enter__(self) -> "GitlabProxy":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def call(self, method: str, endpoint: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """An endpoint of the real server."""
        given = {"params": fields} if method == "GET" else {"json": fields}
        answer = self.session.request(method, f"{self.mlflow}/api/2.0/mlflow/{endpoint}", timeout=500, **given)
        return answer.status_code, answer.json()

    @property
    def session(self) -> requests.Session:
        """Connections to the real server, one for each thread."""
        if not hasattr(self._of_thread, "session"):
            self._of_thread.session = requests.Session()
        return self._of_thread.session

    def version(self, name: str, number: str) -> dict[str, Any] | None:
        """A version of the real server by its GitLab number."""
        _, found = self.call("GET", "model-versions/search", filter=f"name='{name}'")
        for one in found.get("model_versions", ()):
            if {"key": "gitlab.version", "value": number} in one.get("tags", ()):
                return one
        return None

    def answer(self, method: str, endpoint: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        special = {
            "model-versions/create": self._create_version,
            "model-versions/get": self._get_version,
            "model-versions/delete": self._delete_version,
            "registered-models/get": self._get_model,
            "runs/get": self._get_run,
            "runs/set-tag": self._set_tag,
        }
        if endpoint in special:
            return special[endpoint](fields)
        if endpoint in ("registered-models/create", "registered-models/delete", "registered-models/search"):
            fields.pop("tags", None)
            return _without_message(self.call(method, endpoint, **fields))
        return 404, {"error": "404 Not Found"}

    def _get_model(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, found = self.call("GET", "registered-models/get", **fields)
        for latest in found.get("registered_model", {}).get("latest_versions", ()):
            latest["version"] = next(tag["value"] for tag in latest["tags"] if tag["key"] == "gitlab.version")
        return _without_message((status, found))

    def _create_version(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name, tags = fields["name"], {tag["key"]: tag["value"] for tag in fields.get("tags", ())}
        number = tags["gitlab.version"]
        if self.version(name, number) is not None:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Version already exists"}
        _, experiment = self.call("GET", "experiments/get-by-name", experiment_name=f"[model]{name}")
        identity = experiment.get("experiment", {}).get("experiment_id")
        if identity is None:
            identity = self.call("POST", "experiments/create", name=f"[model]{name}")[1]["experiment_id"]
        info = self.call("POST", "runs/create", experiment_id=identity, start_time=1)[1]["run"]["info"]
        status, made = self.call(
            *("POST", "model-versions/create"),
            name=name,
            source=info["artifact_uri"],
            run_id=info["run_id"],
            tags=fields["tags"],
        )
        return (status, _as_gitlab(made["model_version"], number)) if status == 200 else (404, _NOT_THERE)

    def _get_version(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self.version(fields["name"], fields["version"])
        return (404, _NOT_THERE) if found is None else (200, _as_gitlab(found, fields["version"]))

    def _delete_version(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self.version(fields["name"], fields["version"])
        if found is None:
            return 404, _NOT_THERE
        return self.call("DELETE", "model-versions/delete", name=fields["name"], version=found["version"])

    def _get_run(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, found = self.call("GET", "runs/get", **fields)
        if status == 200:
            info = found["run"]["info"]
            place = f"{info['experiment_id']}:{info['run_id']}"
            info["artifact_uri"] = f"{self.origin}{PROJECT}/packages/ml_models/{place}/files/"
        return _without_message((status, found))

    def _set_tag(self, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        run = self.call("GET", "runs/get", run_id=fields["run_id"])[1]["run"]
        if any(tag["key"] == fields["key"] for tag in run["data"].get("tags", ())):
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Name has already been taken"}
        return self.call("POST", "runs/set-tag", **fields)

    def file_url(self, place: str, path: str) -> str:
        experiment, _, run = place.partition(":")
        return f"{self.mlflow}/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/{path}"


def _as_gitlab(version: dict[str, Any], number: str) -> dict[str, Any]:
    shown = {key: version[key] for key in ("name", "run_id", "creation_timestamp")}
    return {"model_version": {**shown, "version": number, "source": "", "tags": []}}


def _without_message(answer: tuple[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """GitLab says what kind of error it is, and often no more."""
    status, body = answer
    return (status, {"error_code": body["error_code"]}) if "error_code" in body else (status, body)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer go out one after the other

    @property
    def gitlab(self) -> "GitlabProxy":
        return self.server.gitlab

    def log_message(self, *_: object) -> None:
        """Tests look at `requests`."""

    def do_GET(self) -> None:
        self._route()

    def do_POST(self) -> None:
        self._route()

    def do_PUT(self) -> None:
        self._route()

    def do_DELETE(self) -> None:
        self._route()

    def _route(self) -> None:
        place = urlsplit(self.path)
        self.gitlab.requests.append((self.command, place.path, dict(self.headers)))
        if stored := re.fullmatch(r"/object-store/([^/]+)/(.*)", place.path):
            self._object_store(stored[1], stored[2])
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json(401, {"message": "401 Unauthorized"})
        elif called := re.fullmatch(f"{PROJECT}/ml/mlflow/api/2.0/mlflow/(.*)", place.path):
            self._mlflow(called[1], dict(parse_qsl(place.query)))
        elif package := re.fullmatch(f"{PROJECT}/packages/ml_models/([^/]+)/files/(.+)", place.path):
            self._package(package[1], package[2])
        else:
            self._json(404, {"message": "404 Project Not Found"})

    def _mlflow(self, endpoint: str, query: dict[str, str]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._is_faulty(endpoint):
            self._json(*self.gitlab.answer(self.command, endpoint, {**query, **json.loads(body or b"{}")}))

    def _is_faulty(self, what: str) -> bool:
        if self.gitlab.faults.busy.get(what):
            self.gitlab.faults.busy[what] -= 1
            self._json(503, {"message": "busy"})
            return True
        if what in self.gitlab.faults.refusals:
            self._json(*self.gitlab.faults.refusals[what])
            return True
        return False

    def _package(self, place: str, path: str) -> None:
        if self.command == "PUT":
            self._store(place, path)
        elif self.command != "GET":
            self._json(405, {"error": "405 Not Allowed"})
        elif not self._is_faulty(unquote(path)):
            # Another host, so that a client that hands on its token is found out.
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.gitlab.port}/object-store/{quote(place)}/{path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _store(self, place: str, path: str) -> None:
        size = int(self.headers["Content-Length"])
        if self.gitlab.faults.cut_uploads:
            self.gitlab.faults.cut_uploads -= 1
            self.rfile.read(min(size, 1000))
            self._hang_up()
            return
        body = self.rfile.read(size)
        if not self._is_faulty(unquote(path)):
            self.gitlab.session.put(self.gitlab.file_url(place, path), data=body, timeout=500).raise_for_status()
            self._json(201, {"message": "201 Created"})

    def _object_store(self, place: str, path: str) -> None:
        if "Authorization" in self.headers:
            self._json(400, {"message": "only one way to authenticate is allowed"})
            return
        asked = {name: self.headers[name] for name in ("Range", "If-Range") if name in self.headers}
        found = self.gitlab.session.get(
            self.gitlab.file_url(unquote(place), path),
            headers={} if self.gitlab.faults.no_ranges else asked,
            timeout=500,
        )
        if found.status_code >= 400:
            self._json(found.status_code, {"message": f"{found.status_code} {found.reason}"})
            return
        self.send_response(found.status_code)
        for name in _FORWARDED:
            if name in found.headers and not (self.gitlab.faults.no_validators and name in ("ETag", "Last-Modified")):
                self.send_header(name, found.headers[name])
        self.end_headers()
        self._body(b"#" + found.content[1:] if self.gitlab.faults.damage else found.content)

    def _body(self, content: bytes) -> None:
        if self.gitlab.faults.cut_downloads:
            self.wfile.write(content[: self.gitlab.faults.cut_downloads.pop(0)])
            self._hang_up()
            return
        with suppress(ConnectionError):  # a client that only wanted to know whether it is there
            self.wfile.write(content)

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True

    def _json(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
