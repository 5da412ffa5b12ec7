# SPDX-License-Identifier: Apache-2.0
"""MLflow's REST API, as GitLab's model registry and MLflow itself speak it: requests, attempts, errors as sentences.

MLflow's client library does not do it: an entry in ~/.netrc takes the place of the token that it is given, it sends a
`create` again that the server may have done already, and a refusal of GitLab's loses its status (401 becomes 500). What
is asked of the API is in `gitlab_registry.py` and `gitlab_files.py`.
"""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nemo_gym._transport.retries import retry_after_s
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

NOT_THERE = "RESOURCE_DOES_NOT_EXIST"
_API = "/api/2.0/mlflow/"
_TIMEOUT_S = (15.0, 300.0)
"""For a connection, and for the next byte: after the last byte of an upload a server may have much to do."""
_TURNED_AWAY = frozenset({429, 503})
_BUSY = _TURNED_AWAY | {502, 504}
_REPEATABLE = frozenset({"GET", "PUT"})
_URI_HINT = "the URI of GitLab looks like https://gitlab.example.com/api/v4/projects/<project id>/ml/mlflow"
_TOKEN_HINT = "put a GitLab token with the scope `api` into env.yaml as `mlflow_tracking_token`"


class GitlabError(GymError):
    """The registry cannot be reached, or does not do what it was asked."""

    def __init__(self, message: str, status: int | None = None, code: str = "") -> None:
        super().__init__(message, status, code)
        self.message, self.status, self.code = message, status, code

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class RegistrySettings:
    """Which registry to ask, and as whom."""

    tracking_uri: str
    token: str | None = field(default=None, repr=False)
    pauses_s: tuple[float, ...] = (0.5, 2.0, 5.0)
    """How long to wait before each further attempt at a request that may be repeated."""

    @property
    def is_gitlab(self) -> bool:
        """Whether it is GitLab's flavour of MLflow, which shows in the route."""
        return re.search(r"/api/v4/projects/[^/]+/ml/mlflow/?$", urlsplit(self.tracking_uri).path) is not None

    @property
    def shown_uri(self) -> str:
        """The URI as it may be shown: without credentials."""
        return re.sub(r"(?<=://)[^/@]*@", "", self.tracking_uri)


class Api:
    """Requests to one registry, over one connection; a context manager."""

    def __init__(self, settings: RegistrySettings) -> None:
        if urlsplit(settings.tracking_uri).scheme not in ("http", "https"):
            raise GitlabError(f"mlflow_tracking_uri is {settings.shown_uri!r}, which is not a URL.\nhint: {_URI_HINT}")
        self.settings = settings
        self.base = settings.tracking_uri.rstrip("/")
        self._session = _new_session()

    def __enter__(self) -> "Api":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def call(self, method: str, endpoint: str, what: str, **fields: Any) -> dict[str, Any]:
        """What an endpoint of MLflow's API answers; GitlabError `could not <what>` with its code if it refuses."""
        given = {"params": fields} if method == "GET" else {"json": fields}
        response = self.request(method, f"{self.base}{_API}{endpoint}", what, allow_redirects=method == "GET", **given)
        if response.is_redirect:
            raise GitlabError(
                f"could not {what}: {self.settings.shown_uri} has moved to {response.headers['Location']}.\n"
                "hint: set mlflow_tracking_uri in env.yaml to where it is",
                response.status_code,
            )
        try:
            answer = response.json()
        except ValueError as error:
            raise GitlabError(
                f"could not {what}: what {self.settings.shown_uri} answers is not MLflow's API.\nhint: {_URI_HINT}"
            ) from error
        return answer if isinstance(answer, dict) else {}

    def request(self, method: str, url: str, what: str, **options: Any) -> "Response":
        """The answer to a request; GitlabError if there is none, or it is a refusal.

        What is sent along must be readable from its beginning again if it is a file: `data.seek(0)`.
        """
        for pause_s in (*self.settings.pauses_s, None):
            if hasattr(options.get("data"), "seek"):
                options["data"].seek(0)
            outcome = self._attempt(method, url, what, options)
            if not isinstance(outcome, _FailedAttempt):
                return outcome
            if pause_s is None or not outcome.may_be_repeated:
                raise outcome.error
            time.sleep(max(pause_s, outcome.wait_s))
        raise AssertionError("the last attempt ends it")

    def _attempt(self, method: str, url: str, what: str, options: dict[str, Any]) -> "Response | _FailedAttempt":
        import requests

        try:
            response = self._session.request(
                method, url, auth=self._auth(url), timeout=_TIMEOUT_S, **{"stream": False, **options}
            )
        except requests.RequestException as error:
            return _FailedAttempt(self.explain_disconnect(what, error), method in _REPEATABLE)
        if response.status_code < 400:
            return response
        failure = self._explain_refusal(what, response, sent_token=self._is_ours(url))
        response.close()
        may_be_repeated = response.status_code in (_BUSY if method in _REPEATABLE else _TURNED_AWAY)
        return _FailedAttempt(failure, may_be_repeated, retry_after_s(response.headers, datetime.now(UTC)) or 0.0)

    def _auth(self, url: str) -> "_Bearer | None":
        """The token is for the registry and for nobody it sends us to."""
        return _Bearer(self.settings.token) if self.settings.token and self._is_ours(url) else None

    def _is_ours(self, url: str) -> bool:
        return urlsplit(url).hostname == urlsplit(self.base).hostname

    def explain_disconnect(self, what: str, error: Exception) -> GitlabError:
        return GitlabError(
            f"could not {what}: no connection to {self.settings.shown_uri} ({self._mask_token(_find_cause(error))}).\n"
            "hint: check the network and mlflow_tracking_uri in env.yaml, then run the command again"
        )

    def _explain_refusal(self, what: str, response: "Response", *, sent_token: bool) -> GitlabError:
        status, (code, said) = response.status_code, _read_explanation(response)
        said = self._mask_token(f" ({said})" if said else "")
        has_token = bool(self.settings.token) and sent_token
        if status == 401:
            reason = "the registry does not accept the token" if has_token else "the registry asks for a token"
            reason = f"{reason}: 401{said}.\nhint: {_TOKEN_HINT}"
        elif status == 403:
            reason = (
                f"this token has no right to it: 403{said}.\nhint: it takes the scope `api` and a role in the project "
                "that may write to its model registry"
            )
        elif status == 404 and not code:
            reason = f"there is nothing at {self.settings.shown_uri}: 404{said}.\nhint: {_URI_HINT}"
        elif status == 429:
            reason = f"too many requests: 429{said}.\nhint: wait a while"
        elif status >= 500:
            reason = f"the registry is out of order: {status}{said}.\nhint: try again later"
        else:
            reason = f"the registry answered {status}{said}"
        return GitlabError(f"could not {what}: {reason}", status, code)

    def _mask_token(self, text: str) -> str:
        return text.replace(self.settings.token, "****") if self.settings.token else text


@dataclass(frozen=True)
class _FailedAttempt:
    """An attempt that failed, and whether another one makes sense."""

    error: GitlabError
    may_be_repeated: bool
    wait_s: float = 0.0


class _Bearer:
    """A token in a header. An `auth` of our own also keeps an entry in ~/.netrc from taking its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: "PreparedRequest") -> "PreparedRequest":
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _new_session() -> "Session":
    try:
        import requests
    except ImportError as error:
        raise GitlabError(
            "the model registry needs the package `requests`, which is not installed.\n"
            "hint: pip install 'nemo-gym[data]'"
        ) from error
    session = requests.Session()
    session.headers["User-Agent"] = "nemo-gym"
    return session


def _read_explanation(response: "Response") -> tuple[str, str]:
    """MLflow's code of an error, and what the server says about it."""
    try:
        body = response.json()
    except ValueError:
        return "", ""
    if not isinstance(body, dict):
        return "", ""
    said = body.get("message") or body.get("error_description") or body.get("error") or ""
    return str(body.get("error_code") or ""), " ".join(str(said).split())[:300]


def _find_cause(error: BaseException) -> str:
    """The innermost reason: `Connection refused` rather than the names of three libraries."""
    inner = error
    while (deeper := inner.__cause__ or inner.__context__ or getattr(inner, "reason", None)) is not None and isinstance(
        deeper, BaseException
    ):
        inner = deeper
    return " ".join(str(inner).split()) or type(inner).__name__
