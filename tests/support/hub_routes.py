# SPDX-License-Identifier: Apache-2.0
"""The protocol of the Hub for tests: what is answered to which request, about repositories, commits and files.

How it runs, and what goes wrong, is in `fake_hub`.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.support.hub_store import LFS_FROM_BYTES, READER, WRITER, Dataset, Fault, git_oid, sha256

BAD_TOKEN = "Invalid credentials in Authorization header"
Route = tuple[str, str, Callable[[web.Request], Any]]


class HubRoutes:
    """Answers to requests, from what is kept."""

    def __init__(self) -> None:
        self.datasets: dict[str, Dataset] = {}
        self.collections: dict[str, list[str]] = {}
        self.stored: dict[str, bytes] = {}
        self.url = ""
        self._faulty: dict[int, Fault] = {}
        """By request: what goes wrong while its answer is sent."""

    def add_dataset(self, name: str, files: dict[str, bytes] | None = None, *, private: bool = False) -> Dataset:
        dataset = self.datasets[name] = Dataset(name, private)
        dataset.commit("main", {".gitattributes": b"", **(files or {})})
        return dataset

    def _routes(self) -> list[Route]:
        one = "/api/datasets/{org}/{name}"
        return [
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

    def _token(self, request: web.Request) -> str | None:
        given = request.headers.get("Authorization", "")
        return given.removeprefix("Bearer ") or None

    # --- repositories ---

    def _dataset(self, request: web.Request) -> Dataset | web.Response:
        """The repository of a request; names are found in any case, as a redirect to the right one."""
        asked = f"{request.match_info['org']}/{request.match_info['name']}"
        found = next((one for name, one in self.datasets.items() if name.lower() == asked.lower()), None)
        if found is None or (found.private and self._token(request) is None):
            return refused(404 if self._token(request) else 401, "Repository not found", "RepoNotFound")
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
            return refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found, sha, found.commits[sha]

    async def _whoami(self, request: web.Request) -> web.Response:
        if self._token(request) is None:
            return refused(401, BAD_TOKEN)
        return web.json_response({"type": "user", "name": "someone", "orgs": [{"name": "org"}]})

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        if self._token(request) != WRITER:
            return refused(403 if self._token(request) else 401, "You don't have the rights to create a dataset")
        if any(known.lower() == name.lower() for known in self.datasets):
            return refused(409, "You already created this dataset repo")
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
            return refused(403, "You don't have write access")
        answer = []
        for file in (await request.json())["files"]:
            mode = "lfs" if file["size"] >= LFS_FROM_BYTES else "regular"
            known = at[2].get(file["path"])
            oid = None if known is None else sha256(known) if mode == "lfs" else git_oid(known)
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return web.json_response({"files": answer})

    async def _commit(self, request: web.Request) -> web.Response:
        at = self._at(request)
        if isinstance(at, web.Response):
            return at
        if not self._may_write(request):
            return refused(403, "You don't have write access")
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
                return refused(400, f"LFS object {value['oid']} was never uploaded")
        ref, answer = self._target(request, dataset)
        sha = dataset.commit(ref, changed, header["value"]["summary"], header["value"]["description"])
        answer |= {"commitUrl": f"{self.url}/datasets/{dataset.name}/commit/{sha}", "commitOid": sha}
        return web.json_response({"success": True, **answer})

    def _target(self, request: web.Request, dataset: Dataset) -> tuple[str, dict[str, str]]:
        """Where a commit goes, and what is told about it: a branch, or a pull request of its own."""
        if "create_pr" not in request.query:
            return unquote(request.match_info["revision"]), {}
        dataset.pull_requests += 1
        url = f"{self.url}/datasets/{dataset.name}/discussions/{dataset.pull_requests}"
        return f"refs/pr/{dataset.pull_requests}", {"pullRequestUrl": url}

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
            return refused(400, "the content is not what was announced")
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
            return refused(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        headers = {"X-Repo-Commit": sha, "ETag": f'"{git_oid(content)}"', "Accept-Ranges": "bytes"}
        if len(content) >= LFS_FROM_BYTES:
            headers |= {"X-Linked-ETag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        status, part = 200, content
        if (asked := request.headers.get("Range")) is not None:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            status, part = 206, content[start:]
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        answer = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(part))})
        await answer.prepare(request)
        return answer if request.method == "HEAD" else await self._send(request, answer, part)

    async def _send(self, request: web.Request, answer: web.StreamResponse, content: bytes) -> web.StreamResponse:
        fault = self._faulty.pop(id(request), None)
        if fault is None:
            await answer.write(content)
            return answer
        await answer.write(content[: fault.after_bytes])
        if fault.released is not None:
            await asyncio.to_thread(fault.released.wait)
        return cut(request)

    # --- collections ---

    async def _collection(self, request: web.Request) -> web.Response:
        slug = f"{request.match_info['org']}/{request.match_info['slug']}"
        if slug not in self.collections:
            return refused(404, "Collection not found")
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
            return refused(404, "Collection not found")
        if self._token(request) != WRITER:
            return refused(403, "You don't have write access to this collection")
        if name not in self.datasets:
            return refused(404, "Item not found")
        if name in self.collections[slug]:
            return refused(409, "Already in the collection")
        self.collections[slug].append(name)
        return await self._collection(request)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_oid(content)}
    if len(content) >= LFS_FROM_BYTES:
        entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
    return entry


def refused(status: int, message: str, code: str = "", **headers: str) -> web.Response:
    headers |= {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return web.json_response({"error": message}, status=status, headers=headers)


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
