# SPDX-License-Identifier: Apache-2.0
import json
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class Book(BaseModel):
    title: str
    pages: int = Field(default=100, ge=1)


class ShelfToolsServer(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    SHELVES: ClassVar[tuple[str, ...]] = ("north", "south")

    _books: dict[str, list[Book]] = PrivateAttr(default_factory=dict)
    _log: list[str] = PrivateAttr(default_factory=list)
    _open: bool = PrivateAttr(default=False)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        inner_lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI):
            self._open = True
            try:
                async with inner_lifespan(app) as state:
                    yield state
            finally:
                self._open = False

        app.router.lifespan_context = lifespan

        @app.middleware("http")
        async def note_path(request: Request, call_next):
            self._log.append(request.url.path)
            return await call_next(request)

        app.post("/put")(self.put)
        app.post("/count")(self.count_sync)
        app.post("/untyped")(self.untyped)
        app.post("/move")(self.move)
        app.post("/text")(self.text)
        app.post("/broken")(self.broken)
        app.post("/later")(self.later)
        app.post("/created", status_code=201)(self.created)
        app.get("/log")(self.log)
        for shelf in self.SHELVES:
            app.post(f"/list_{shelf}")(partial(self.list_shelf, shelf))
        for name in ("shout", "whisper"):
            self._add_voice(app, name)
        router = APIRouter(prefix="/admin")
        router.get("/open")(self.is_open)
        app.include_router(router)
        app.post("/{path}")(self.route_to_tool)

        return app

    def _add_voice(self, app: FastAPI, name: str) -> None:
        @app.post(f"/{name}")
        async def voice(body: dict[str, Any] = Body(...)) -> dict[str, Any]:
            return {"said": body["words"].upper() if name == "shout" else body["words"].lower()}

    async def put(self, body: Book, request: Request) -> dict[str, Any]:
        books = self._books.setdefault(request.session[SESSION_ID_KEY], [])
        books.append(body)
        return {"books": books, "total": len(books)}

    def count_sync(self, request: Request) -> int:
        return len(self._books.get(request.session[SESSION_ID_KEY], []))

    async def untyped(self, request: Request):
        body = await request.json()
        return {"keys": sorted(body), "session": request.session[SESSION_ID_KEY] != ""}

    async def move(self, book: Book, shelf: str = Body(), loud: bool = Query(default=False)) -> str:
        return f"{book.title} to {shelf}" + ("!" if loud else "")

    async def text(self, x_style: str = Header(default="plain"), extra: str = Depends(lambda: "dep")):
        return PlainTextResponse(f"{x_style} {extra}")

    async def broken(self, body: dict) -> dict:
        raise ValueError(f"cannot use {body!r}")

    async def later(self, body: Book, tasks: BackgroundTasks) -> dict:
        tasks.add_task(self._log.append, f"later {body.title}")
        return {"accepted": True}

    async def created(self, body: list[Book]) -> list[Book]:
        return body

    async def list_shelf(self, shelf: str, request: Request) -> dict:
        return {"shelf": shelf, "from": request.url.path}

    async def log(self) -> list[str]:
        return self._log

    async def is_open(self) -> bool:
        return self._open

    async def route_to_tool(self, path: str, request: Request):
        assert request.path_params == {"path": path}
        arguments = await request.json()
        if path == "divide":
            try:
                return JSONResponse({"quotient": arguments["a"] / arguments["b"]})
            except ZeroDivisionError as e:
                return JSONResponse(status_code=400, content={"error": str(e)})
        raise HTTPException(status_code=404, detail=f"no tool {path} for {json.dumps(arguments)}")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        calls = [item for item in body.response.output if item.type == "function_call"]
        return BaseVerifyResponse(**body.model_dump(), reward=float(len(calls)))


if __name__ == "__main__":
    ShelfToolsServer.run_webserver()
