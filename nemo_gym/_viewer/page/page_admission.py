# SPDX-License-Identifier: Apache-2.0
"""Admit to the page those who may call any server, and let through only requests that read it or that it makes."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Scope

from nemo_gym._servers.http.admission import Admission

_QUESTIONS = "/gradio_api/run/"
_READING = ("GET", "HEAD")


class PageAdmission(Admission):
    """Passes on to Gradio the requests that read the page and those that the page makes.

    A token comes in the address of the page the first time, and in a cookie from then on.
    """

    async def refuse(self, scope: Scope) -> Response | None:
        refusal = await super().refuse(scope)
        if refusal is not None:
            return refusal
        if scope["method"] not in _READING and not scope["path"].startswith(_QUESTIONS):
            return self.reply(403, _ONLY_QUESTIONS)
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if self._rules.token is None or "token" not in asked:
            return None
        # The token is taken out of the address, which people copy and browsers remember.
        token = asked.pop("token")
        reply = RedirectResponse(f"/?{urlencode(asked)}" if asked else "/", 303)
        reply.set_cookie(_cookie_name(scope), token, httponly=True, samesite="lax")
        return reply

    def has_token(self, scope: Scope, given: bytes | None) -> bool:
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        tokens = (given, asked.get("token", "").encode(), _token_in_cookie(scope))
        return any(super(PageAdmission, self).has_token(scope, token) for token in tokens)

    def reply(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
        if status == 401:
            text = _NO_TOKEN
        return PlainTextResponse(text, status, headers)


def _cookie_name(scope: Scope) -> str:
    # Cookies of a host are shared by its ports.
    return f"nemo_gym_view_{scope['server'][1]}"


def _token_in_cookie(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(_cookie_name(scope))
            except CookieError:
                found = None
            if found is not None:
                return found.value.encode("latin-1")
    return None


_ONLY_QUESTIONS = (
    "the request was refused: the viewer takes no uploads and no commands.\n"
    "it shows the files that `gym view` was started with.\n"
    "hint: to see other files, name them on its command line"
)
_NO_TOKEN = (
    "this viewer shows its page only to those who have its token.\n"
    "the address that you opened has none, or a wrong one.\n"
    "hint: open the address that `gym view` has printed, with `?token=` and what follows"
)
