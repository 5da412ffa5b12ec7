# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Hub for tests: its REST protocol over real HTTP on a free port, for the real `huggingface_hub`.

Datasets, branches, pull requests, large files by the LFS protocol, collections, tokens, private repositories, byte
ranges. It offers no Xet: clients are to be run with `HF_HUB_DISABLE_XET=1`. Faults are switched on by a test.

    with FakeHub() as hub:
        hub.add_dataset("org/set", {"train.jsonl": b"{}\n"})
        HfApi(endpoint=hub.url).dataset_info("org/set")
"""

import asyncio
import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

WRITER = "hf_writer"
READER = "hf_reader"
_LFS_FROM_BYTES = 1000
_BAD_TOKEN = "Invalid credentials in Authorization header"


@dataclass
class Dataset:
    """A repository: the files of each commit, and the commits that branches and pull requests stand at."""

    name: str
    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    pull_requests: int = 0

    def commit(self, ref: str, files: dict[str, bytes], summary: str = "", description: str = "") -> str:
        sha = hashlib.sha1(f"{self.name}{len(self.commits)}".encode()).hexdigest()
        self.commits[sha] = files
        self.refs[ref] = sha
        self.messages.append((summary, description))
        return sha

    def sha_of(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)

    def files(self, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.refs[revision]]


@dataclass
class Fault:
    """What goes wrong with requests to a path: a status, or a connection that is cut after so many bytes."""

    method: str
    path: re.Pattern[str]
    status: int = 0
    after_bytes: int = 0
    times: int = 1
    released: threading.Event | None = None
    """If set, the connection is not cut but left hanging until then."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator["FakeHub"]:
    """A Hub that the client library in this process takes for the public one; between attempts nothing is waited."""
    from huggingface_hub import constants

    with FakeHub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "".join(template[1:]))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-login"))
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        monkeypatch.setattr("time.sleep", lambda _: None)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def environment(hub: "FakeHub", home: Path) -> dict[str, str]:
    """What makes a process of its own take a hub for the public one."""
    return {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home), "HF_TOKEN": ""}


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class FakeHub:
    """The Hub, running inside `with`."""

    def __init__(self) -> None:
        self.datasets: dict[str, Dataset] = {}
        self.collections: dict[str, list[str]] = {}
        self.received: list[tuple[str, str, dict[str, str]]] = []
        self.faults: list[Fault] = []
        self.stored: dict[str, bytes] = {}
        self.url = ""
        self._faulty: dict[int, Fault] = {}

    # --- what a test sets up and looks at ---

    def add_dataset(self, name: str, files: dict[str, bytes] | None = None, *, private: bool = False) -> Dataset:
        dataset = self.datasets[name] = Dataset(name, private)
        dataset.commit("main", {".gitattributes": b"", **(files or {})})
        return dataset

    def add_collection(self, slug: str) -> list[str]:
        return self.collections.setdefault(slug, [])

    def fail(self, method: str, path: str, status: int, times: int = 1) -> None:
        """Answer `times` requests to paths that match with a status."""
        self.faults.append(Fault(method, re.compile(path), status=status, times=times))

    def cut(self, method: str, path: str, after_bytes: int = 0, times: int = 1) -> None:
        """Cut the connection of `times` requests after so many bytes of the body, theirs or ours."""
        self.faults.append(Fault(method, re.compile(path), after_bytes=after_bytes, times=times))

    def hang(self, method: str, path: str, after_bytes: int = 0) -> threading.Event:
        """Leave one request hanging after so many bytes, until the event is set."""
        released = threading.Event()
        self.faults.append(Fault(method, re.compile(path), after_bytes=after_bytes, released=released))
        return released

    def calls(self, method: str, path: str) -> list[dict[str, str]]:
        """The headers of every request so far to paths that match."""
        return [headers for verb, where, headers in self.received if verb == method and re.search(path, where)]

    # --- running ---

    def __enter__(self) -> "FakeHub":
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10), "the hub did not start"
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self.faults:
            if fault.released is not None:
                fault.released.set()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self, started: threading.Event) -> None:
        async def serve() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            runner = web.AppRunner(self._app(), shutdown_timeout=0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            started.set()
            await self._stop.wait()
            await runner.cleanup()

        asyncio.run(serve())

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 30)
        one = "/api/datasets/{org}/{name}"
        routes: list[tuple[str, str, Callable[[web.Request], Any]]] = [
            ("GET", "/api/whoami-v2", self._whoami),
            ("POST", "/api/repos/create", self._create),
            ("DELETE", "/api/repos/delete", self._delete),
            ("GET", one, self._info),
            ("GET", one + "/revision/{revision}", self._info),
            ("GET", one + "/refs", self._refs),
            ("GET", one + "/tree/{revision}", self._tree),
            ("POST", one + "/paths-info/{revision}", self._paths_info),
            ("POST", one + "/preupload/{revision}", self._preupload),
            ("POST", one + "/commit/{revision}", self._commit),
            ("POST", "/datasets/{org}/{name}.git/info/lfs/objects/batch", self._lfs_batch),
            ("PUT", "/lfs/{oid}", self._lfs_upload),
            ("POST", "/lfs/{oid}/verify", self._lfs_verify),
            ("*", "/datasets/{org}/{name}/resolve/{revision}/{path:.+}", self._resolve),
            ("GET", "/api/collections/{org}/{slug}", self._collection),
            ("POST", "/api/collections/{org}/{slug}/items", self._add_item),
        ]
        for method, path, handler in routes:
            app.router.add_route(method, path, handler)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.received.append((request.method, request.path, dict(request.headers)))
        fault = self._fault_of(request)
        if fault is not None and fault.status:
            return _refused(fault.status, "out of order")
        if fault is not None and request.method in ("PUT", "POST"):
            await request.content.read(fault.after_bytes)
            return _cut(request)
        if self._token(request) not in (None, WRITER, READER):
            return _refused(401, _BAD_TOKEN)
        if fault is not None:
            self._faulty[id(request)] = fault
        response: web.StreamResponse = await handler(request)
        return response

    def _fault_of(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == request.method and fault.path.search(request.path):
                fault.times -= 1
                return fault
        return None

    def _token(self, request: web.Request) -> str | None:
        given = request.headers.get("Authorization", "")
        return given.removeprefix("Bearer ") or None

    # --- repositories ---

    def _dataset(self, request: web.Request) -> Dataset | web.Response:
        """The repository of a request; names are found in any case, as a redirect to the right one."""
        asked = f"{request.match_info['org']}/{request.match_info['name']}"
        found = next((one for name, one in self.datasets.items() if name.lower() == asked.lower()), None)
        if found is None or (found.private and self._token(request) is None):
            return _refused(404 if self._token(request) else 401, "Repository not found", "RepoNotFound")
        if found.name != asked:
            right = request.raw_path.replace(f"/{asked}", f"/{found.name}", 1)
            return web.Response(status=307, headers={"Location": right})
        return found

    def _at(self, request: web.Request) -> tuple[Dataset, str, dict[str, bytes]] | web.Response:
        """The repository of a request, and commit and files of its revision."""
        found = self._dataset(request)
        if isinstance(found, web.Response):
            return found
        revision = unquote(request.match_info.get("revision", "main"))
        sha = found.sha_of(revision)
        if sha is None:
            return _refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found, sha, found.commits[sha]

    async def _whoami(self, request: web.Request) -> web.Response:
        if self._token(request) is None:
            return _refused(401, _BAD_TOKEN)
        return web.json_response({"type": "user", "name": "someone", "orgs": [{"name": "org"}]})

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        if self._token(request) != WRITER:
            return _refused(403 if self._token(request) else 401, "You don't have the rights to create a dataset")
        if any(known.lower() == name.lower() for known in self.datasets):
            return _refused(409, "You already created this dataset repo")
        self.add_dataset(name, private=asked.get("visibility") == "private" or bool(asked.get("private")))
        return web.json_response({"url": f"{self.url}/datasets/{name}", "name": name, "id": name})

    async def _delete(self, request: web.Request) -> web.Response:
        asked = await request.json()
        del self.datasets[f"{asked['organization']}/{asked['name']}"]
        return web.json_response({})

    async def _info(self, request: web.Request) -> web.Response:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        dataset, sha, files = at
        return web.json_response(
            {
                "id": dataset.name,
                "sha": sha,
                "private": dataset.private,
                "siblings": [{"rfilename": path} for path in files],
            }
        )

    async def _refs(self, request: web.Request) -> web.Response:
        found = self._dataset(request)
        if isinstance(found, web.Response):
            return found
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha}
            for name, sha in found.refs.items()
            if not name.startswith("refs/pr/")
        ]
        return web.json_response({"branches": branches, "converts": [], "tags": []})

    async def _tree(self, request: web.Request) -> web.Response:
        at = self._at(request)
        return at if isinstance(at, web.Response) else web.json_response([_entry(*one) for one in at[2].items()])

    async def _paths_info(self, request: web.Request) -> web.Response:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        asked = (await request.post()).getall("paths", [])
        return web.json_response([_entry(path, at[2][path]) for path in asked if path in at[2]])

    # --- commits ---

    def _may_write(self, request: web.Request) -> bool:
        return self._token(request) == WRITER or (self._token(request) == READER and "create_pr" in request.query)

    async def _preupload(self, request: web.Request) -> web.Response:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        if not self._may_write(request):
            return _refused(403, "You don't have write access")
        answer = []
        for file in (await request.json())["files"]:
            mode = "lfs" if file["size"] >= _LFS_FROM_BYTES else "regular"
            known = at[2].get(file["path"])
            oid = None if known is None else sha256(known) if mode == "lfs" else git_oid(known)
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return web.json_response({"files": answer})

    async def _commit(self, request: web.Request) -> web.Response:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        if not self._may_write(request):
            return _refused(403, "You don't have write access")
        dataset, _, files = at
        header, *operations = [json.loads(line) for line in (await request.read()).splitlines()]
        changed = dict(files)
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                changed[value["path"]] = base64.b64decode(value["content"])
            elif value["oid"] in self.stored:
                changed[value["path"]] = self.stored[value["oid"]]
            else:
                return _refused(400, f"LFS object {value['oid']} was never uploaded")
        ref, answer = unquote(request.match_info["revision"]), {}
        if "create_pr" in request.query:
            dataset.pull_requests += 1
            ref = f"refs/pr/{dataset.pull_requests}"
            answer["pullRequestUrl"] = f"{self.url}/datasets/{dataset.name}/discussions/{dataset.pull_requests}"
        sha = dataset.commit(ref, changed, header["value"]["summary"], header["value"]["description"])
        answer |= {"commitUrl": f"{self.url}/datasets/{dataset.name}/commit/{sha}", "commitOid": sha}
        return web.json_response({"success": True, **answer})

    async def _lfs_batch(self, request: web.Request) -> web.Response:
        objects = []
        for one in (await request.json())["objects"]:
            actions = {
                "upload": {"href": f"{self.url}/lfs/{one['oid']}"},
                "verify": {"href": f"{self.url}/lfs/{one['oid']}/verify"},
            }
            objects.append(one if one["oid"] in self.stored else {**one, "actions": actions})
        return web.json_response({"transfer": "basic", "objects": objects})

    async def _lfs_upload(self, request: web.Request) -> web.Response:
        content = await request.read()
        if sha256(content) != request.match_info["oid"]:
            return _refused(400, "the content is not what was announced")
        self.stored[request.match_info["oid"]] = content
        return web.Response()

    async def _lfs_verify(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["oid"] in self.stored else 404)

    # --- files ---

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        _, sha, files = at
        content = files.get(request.match_info["path"])
        if content is None:
            return _refused(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        is_lfs = len(content) >= _LFS_FROM_BYTES
        headers = {"X-Repo-Commit": sha, "ETag": f'"{git_oid(content)}"', "Accept-Ranges": "bytes"}
        if is_lfs:
            headers |= {"X-Linked-ETag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        status, part = 200, content
        if (asked := request.headers.get("Range")) is not None:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            status, part = 206, content[start:]
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        answer = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(part))})
        await answer.prepare(request)
        if request.method == "HEAD":
            return answer
        fault = self._faulty.pop(id(request), None)
        if fault is None:
            await answer.write(part)
            return answer
        await answer.write(part[: fault.after_bytes])
        if fault.released is not None:
            await asyncio.to_thread(fault.released.wait)
        return _cut(request)

    # --- collections ---

    async def _collection(self, request: web.Request) -> web.Response:
        slug = f"{request.match_info['org']}/{request.match_info['slug']}"
        if slug not in self.collections:
            return _refused(404, "Collection not found")
        items = [
            {"_id": str(number), "id": name, "type": "dataset", "position": number}
            for number, name in enumerate(self.collections[slug])
        ]
        return web.json_response(
            {
                "slug": slug,
                "title": slug,
                "owner": request.match_info["org"],
                "items": items,
                "lastUpdated": "2026-01-01T00:00:00.000Z",
                "position": 0,
                "private": False,
                "theme": "green",
                "upvotes": 0,
            }
        )

    async def _add_item(self, request: web.Request) -> web.Response:
        slug = f"{request.match_info['org']}/{request.match_info['slug']}"
        name = (await request.json())["item"]["id"]
        if slug not in self.collections:
            return _refused(404, "Collection not found")
        if self._token(request) != WRITER:
            return _refused(403, "You don't have write access to this collection")
        if name not in self.datasets:
            return _refused(404, "Item not found")
        if name in self.collections[slug]:
            return _refused(409, "Already in the collection")
        self.collections[slug].append(name)
        return await self._collection(request)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_oid(content)}
    if len(content) >= _LFS_FROM_BYTES:
        entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
    return entry


def _refused(status: int, message: str, code: str = "", **headers: str) -> web.Response:
    headers |= {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return web.json_response({"error": message}, status=status, headers=headers)


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
