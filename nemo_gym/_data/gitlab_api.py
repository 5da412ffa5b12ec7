# SPDX-License-Identifier: Apache-2.0
"""MLflow's REST API, as GitLab's model registry and MLflow itself implement it: requests, retries, readable errors.

MLflow's client library will not do: it cannot resume a download, it reports a broken one as a file that does not exist,
it cannot list the files of a GitLab registry, and it loses the status of a refusal (401 and 403 become 500).
`gitlab_registry.py` and `gitlab_files.py` make the requests.
"""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
_URI_HINT = "GitLab's URI looks like https://gitlab.example.com/api/v4/projects/<project id>/ml/mlflow"
_TOKEN_HINT = "put a GitLab token with the scope `api` into env.yaml as `mlflow_tracking_token`"


class GitlabError(GymError):
    """The registry cannot be reached, or refuses a request."""

    def __init__(self, message: str, status: int | None = None, code: str = "") -> None:
        super().__init__(message, status, code)
        self.message = message
        self.status = status
        self.code = code

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class RegistrySettings:
    """Which registry to use, and with which credentials."""

    tracking_uri: str
    token: str | None = field(default=None, repr=False)
    pauses_s: tuple[float, ...] = (0.5, 2.0, 5.0)
    """How long to wait before each retry of a request that may be repeated."""

    @property
    def is_gitlab(self) -> bool:
        """Whether it is GitLab's variant of MLflow, which shows in the route."""
        return re.search(r"/api/v4/projects/[^/]+/ml/mlflow/?$", urlsplit(self.tracking_uri).path) is not None

    @property
    def shown_uri(self) -> str:
        """The URI without credentials, for display."""
        return re.sub(r"(?<=://)[^/@]*@", "", self.tracking_uri)


class Api:
    """Requests to one registry, over one connection."""

    def __init__(self, settings: RegistrySettings) -> None:
        if urlsplit(settings.tracking_uri).scheme not in ("http", "https"):
            raise GitlabError(f"mlflow_tracking_uri is {settings.shown_uri!r}, which is not a URL.\nhint: {_URI_HINT}")
        self.settings = settings
        self.base = settings.tracking_uri.rstrip("/")
        self._session = _open_session(settings.pauses_s)

    def close(self) -> None:
        self._session.close()

    def call(self, method: str, endpoint: str, what: str, **fields: Any) -> dict[str, Any]:
        """Return what an endpoint of MLflow's API answers; raise `could not <what>` with the code if it refuses."""
        given = {"params": fields} if method == "GET" else {"json": fields}
        response = self.request(method, f"{self.base}{_API}{endpoint}", what, allow_redirects=method == "GET", **given)
        if response.is_redirect:
            raise GitlabError(
                f"could not {what}: {self.settings.shown_uri} has moved to {response.headers['Location']}.\n"
                "hint: set mlflow_tracking_uri in env.yaml to the new address",
                response.status_code,
            )
        try:
            answer = response.json()
        except ValueError as error:
            raise GitlabError(
                f"could not {what}: the answer of {self.settings.shown_uri} is not MLflow's API.\nhint: {_URI_HINT}"
            ) from error
        return answer if isinstance(answer, dict) else {}

    def request(self, method: str, url: str, what: str, **options: Any) -> "Response":
        """Return the answer to a request; raise GitlabError if there is none, or it is a refusal."""
        import requests

        # The token is for the registry only, not for wherever it redirects us.
        is_own_host = urlsplit(url).hostname == urlsplit(self.base).hostname
        has_token = bool(self.settings.token) and is_own_host

        def sign(request: "PreparedRequest") -> "PreparedRequest":
            request.headers["Authorization"] = f"Bearer {self.settings.token}"
            return request

        try:
            # Setting `auth` also keeps an entry in ~/.netrc from replacing the token.
            response = self._session.request(
                method, url, auth=sign if has_token else None, timeout=_TIMEOUT_S, **options
            )
        except requests.RequestException as error:
            raise self.explain_disconnect(what, error) from error
        if response.status_code < 400:
            return response
        with response:
            raise self._explain_refusal(what, response, has_token=has_token)

    def explain_disconnect(self, what: str, error: Exception) -> GitlabError:
        return GitlabError(
            f"could not {what}: no connection to {self.settings.shown_uri} ({self._mask_token(_find_cause(error))}).\n"
            "hint: check the network and mlflow_tracking_uri in env.yaml, then run the command again"
        )

    def _explain_refusal(self, what: str, response: "Response", *, has_token: bool) -> GitlabError:
        status = response.status_code
        code, said = _read_explanation(response)
        if said:
            said = self._mask_token(f" ({said})")
        if status == 401 and has_token:
            reason = f"the registry does not accept the token: 401{said}.\nhint: {_TOKEN_HINT}"
        elif status == 401:
            reason = f"the registry asks for a token: 401{said}.\nhint: {_TOKEN_HINT}"
        elif status == 403:
            reason = (
                f"this token lacks permission: 403{said}.\nhint: it needs the scope `api` and a role in the project "
                "that may write to its model registry"
            )
        elif status == 404 and not code:
            reason = f"there is nothing at {self.settings.shown_uri}: 404{said}.\nhint: {_URI_HINT}"
        elif status == 429:
            reason = f"too many requests: 429{said}.\nhint: wait a while"
        elif status >= 500:
            reason = f"the registry is failing: {status}{said}.\nhint: try again later"
        else:
            reason = f"the registry answered {status}{said}"
        return GitlabError(f"could not {what}: {reason}", status, code)

    def _mask_token(self, text: str) -> str:
        return text.replace(self.settings.token, "****") if self.settings.token else text


def _open_session(pauses_s: tuple[float, ...]) -> "Session":
    """Open a session that retries repeatable requests after each of the pauses."""
    try:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry
    except ImportError as error:
        raise GitlabError(
            "the model registry needs the package `requests`, which is not installed.\n"
            "hint: pip install 'nemo-gym[data]'"
        ) from error

    class Attempts(Retry):
        def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
            return status_code in (_BUSY if method in _REPEATABLE else _TURNED_AWAY)

        def sleep(self, response: Any = None) -> None:
            pause_s = pauses_s[len(self.history) - 1]
            if response is not None:
                pause_s = max(pause_s, retry_after_s(response.headers, datetime.now(UTC)) or 0.0)
            time.sleep(pause_s)

    attempts = Attempts(len(pauses_s), allowed_methods=_REPEATABLE, raise_on_status=False)
    session = requests.Session()
    session.headers["User-Agent"] = "nemo-gym"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=attempts))
    return session


def _read_explanation(response: "Response") -> tuple[str, str]:
    """Return MLflow's error code, and what the server says about it."""
    try:
        body = response.json()
    except ValueError:
        return "", ""
    if not isinstance(body, dict):
        return "", ""
    said = body.get("message") or body.get("error_description") or body.get("error") or ""
    return str(body.get("error_code") or ""), " ".join(str(said).split())[:300]


def _find_cause(error: BaseException) -> str:
    """Return the innermost reason: `Connection refused` rather than the names of three libraries."""
    while isinstance(inner := error.__cause__ or error.__context__ or getattr(error, "reason", None), BaseException):
        error = inner
    return " ".join(str(error).split()) or type(error).__name__
