# SPDX-License-Identifier: Apache-2.0
"""Small repositories with a bug, to be fixed by a program in a workspace or by a model with file tools.

A row names its task; the repository, its hidden tests and the correct code stay here. `/seed_session` returns the
workspace. `/verify` takes the changes, puts the changed sources into the original repository, and runs the hidden tests
in a sandbox: the reward is 1 if all of them pass. What looks like an attempt to deceive them is reported, and costs the
reward if it could have succeeded.
"""

import asyncio
import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool, Limits
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore
from resources_servers.workspace_tasks.hidden_testing import run_hidden_tests
from resources_servers.workspace_tasks.tampering import MAX_SOURCE_CHARS, find_tampering, is_decisive, is_source
from resources_servers.workspace_tasks.tasks import REPOSITORIES, Task, TaskError, load_tasks

MEMORY_MIB = 512
MAX_FILES = 200


class WorkspaceTasksResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    tasks_folder: str | None = None
    """A folder with your own repositories; by default those of this server."""
    num_processes: int = Field(4, ge=1)
    """How many hidden tests run at a time."""
    test_timeout_s: float = Field(10, gt=0)
    """How long one hidden test may take."""


class WorkspaceTasksSeedSessionRequest(BaseSeedSessionRequest):
    """The task of a session."""

    task_id: str


class WorkspaceTasksSeedSessionResponse(BaseSeedSessionResponse):
    """The initial workspace."""

    workspace: dict[str, dict[str, str]]


class ReadFileRequest(BaseModel):
    """Arguments of `read_file`."""

    path: str


class WriteFileRequest(BaseModel):
    """Arguments of `write_file`."""

    path: str
    content: str


class WorkspaceChange(BaseModel):
    """What a program changed in its workspace."""

    files: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """New and changed files: text, or `{"base64": ...}`."""
    deleted: list[str] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list)
    """Files that were too large to pass on."""


class WorkspaceTasksVerifyRequest(BaseVerifyRequest):
    """A task and the response to it."""

    task_id: str
    workspace: WorkspaceChange | None = None
    """A program's changes; None to use the changes made with the file tools."""


class WorkspaceTasksVerifyResponse(BaseVerifyResponse):
    """The reward, and how it came about."""

    task_id: str
    difficulty: str
    tests_passed: int
    tests_total: int
    fraction_passed: float
    """The share of hidden tests that passed: partial credit, which does not affect the reward."""
    failed_tests: dict[str, str]
    """Why each hidden test failed, by its name."""
    changed_files: list[str]
    tampering: list[str]
    """What may be an attempt to deceive the tests, each as `name: file`; some kinds cost the reward."""


class WorkspaceTasksResourcesServer(SimpleResourcesServer):
    """A workspace for each session, three file tools, and a verifier that runs hidden tests."""

    REVERIFY_MODE = ReverifyMode.UNSUPPORTED
    MEAN_REWARDS_BY = "difficulty"
    config: WorkspaceTasksResourcesServerConfig
    _tasks: dict[str, Task] = PrivateAttr()
    _workspaces: SessionStore[dict[str, str]] = PrivateAttr(default_factory=SessionStore)
    _pool: CodePool = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Load the tasks and create the sandbox pool; no sandbox starts before there is something to run."""
        super().model_post_init(context)
        folder = Path(self.config.tasks_folder or REPOSITORIES).resolve()
        _refuse_if_visible(folder)
        self._tasks = load_tasks(folder)
        limits = Limits(memory_mib=MEMORY_MIB)
        self._pool = CodePool(self.config.num_processes, limits, timeout_s=self.config.test_timeout_s)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tools; the sandboxes end when it does."""
        app = super().setup_webserver()
        app.post("/list_files")(self.list_files)
        app.post("/read_file")(self.read_file)
        app.post("/write_file")(self.write_file)
        self._pool.close_with(app)
        return app

    async def seed_session(
        self, request: Request, body: WorkspaceTasksSeedSessionRequest
    ) -> WorkspaceTasksSeedSessionResponse:
        """Return the repository with its bug."""
        files = dict(self._get_task(body.task_id).files)
        self._workspaces[request.session[SESSION_ID_KEY]] = files
        return WorkspaceTasksSeedSessionResponse(workspace={"files": dict(files)})

    async def list_files(self, request: Request) -> dict[str, list[str]]:
        """List the files of the repository."""
        return {"files": sorted(self._workspaces.of_request(request))}

    async def read_file(self, request: Request, body: ReadFileRequest) -> dict[str, str]:
        """Return what is in a file."""
        files = self._workspaces.of_request(request)
        if body.path not in files:
            return {"error": f"there is no file {body.path!r}"}
        return {"content": files[body.path]}

    async def write_file(self, request: Request, body: WriteFileRequest) -> dict[str, Any]:
        """Write a whole file."""
        files = self._workspaces.of_request(request)
        parts = body.path.split("/")
        if not all(parts) or ".." in parts or len(body.content) > MAX_SOURCE_CHARS:
            return {"error": f"a file has a path below the workspace and at most {MAX_SOURCE_CHARS} characters"}
        if body.path not in files and len(files) >= MAX_FILES:
            return {"error": f"a workspace has at most {MAX_FILES} files"}
        files[body.path] = body.content
        return {"written": len(body.content)}

    async def verify(self, request: Request, body: WorkspaceTasksVerifyRequest) -> WorkspaceTasksVerifyResponse:
        """Return 1 if the hidden tests pass on the original repository with the changed sources, by honest means."""
        task = self._get_task(body.task_id)
        change = body.workspace or _find_changes(task.files, self._workspaces.of_request(request))
        changed = {name: _decode(name, content) for name, content in change.files.items()}
        tampering = await asyncio.to_thread(find_tampering, task.files, changed, change.deleted, change.left_out)
        verdict = await run_hidden_tests(
            self._pool, task.tests, _rebuild(task, changed, change.deleted), timeout_s=self.config.test_timeout_s
        )
        tampering += [one for one in verdict.tampering if one not in tampering]
        passed = len(verdict.passed)
        total = len(task.tests.names)
        return WorkspaceTasksVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=float(passed == total and not any(map(is_decisive, tampering))),
            task_id=task.id,
            difficulty=task.difficulty,
            tests_passed=passed,
            tests_total=total,
            fraction_passed=passed / total,
            failed_tests=verdict.failed,
            changed_files=sorted({*changed, *change.deleted}),
            tampering=tampering,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the mean reward for each difficulty, and in how many rollouts tampering was reported."""
        tampered = sum(bool(rollout.get("tampering")) for rollouts in tasks for rollout in rollouts)
        return {**super().compute_metrics(tasks), "tampered_rollouts": tampered}

    def _get_task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            raise HTTPException(
                422,
                f"there is no task {task_id!r}; there are {len(self._tasks)}, such as {next(iter(self._tasks))!r}.\n"
                "hint: regenerate the rows with generate_data.py, or set `tasks_folder`",
            )
        return self._tasks[task_id]


def _refuse_if_visible(folder: Path) -> None:
    """Raise if the hidden tests are in a system folder, which every sandbox can read."""
    for place in (Path("/usr"), Path(sys.base_prefix)):
        if folder.is_relative_to(place.resolve()):
            raise TaskError(
                f"the hidden tests are in {str(folder)!r}, and sandboxes can read all of {str(place)!r}.\n"
                "hint: install nemo-gym in a virtual environment, or copy the folder elsewhere and set `tasks_folder`"
            )


def _find_changes(original: Mapping[str, str], files: Mapping[str, str]) -> WorkspaceChange:
    return WorkspaceChange(files={name: text for name, text in files.items() if original.get(name) != text})


def _decode(name: str, content: str | dict[str, str]) -> str:
    if isinstance(content, str):
        return content
    try:
        return base64.b64decode(content["base64"], validate=True).decode("utf-8", errors="surrogateescape")
    except (KeyError, ValueError) as error:
        raise HTTPException(422, f"the changed file {name!r} is neither text nor base64: {error}") from error


def _rebuild(task: Task, changed: dict[str, str], deleted: list[str]) -> dict[str, str]:
    """Return the original sources with the changed ones in place; tests and settings are left out."""
    files = {name: text for name, text in task.files.items() if name not in deleted}
    files |= {name: text for name, text in changed.items() if len(text) <= MAX_SOURCE_CHARS}
    return {name: text for name, text in files.items() if is_source(name)}


if __name__ == "__main__":
    WorkspaceTasksResourcesServer.run_webserver()
