# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Hub as the data tools see it: a client, names, and readable errors that say what to do.

`hub_upload.py` and `hub_download.py` make the requests. Nothing is loaded before the Hub is needed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from omegaconf import OmegaConf

from nemo_gym._config.config_files import load_file
from nemo_gym._util.json_shapes import as_mapping, as_text
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, HfApi

DATASET: Final = "dataset"
ATTEMPTS = 3
PAUSE_S = 1.0
T = TypeVar("T")
_TOKEN_HINT = "create a token at https://huggingface.co/settings/tokens and put it into env.yaml as `hf_token`"
_SERVERS = "resources_servers"


class HubError(GymError):
    """The Hugging Face Hub cannot be reached, or refuses a request."""


@dataclass(frozen=True)
class Hub:
    """The Hub and the token to use. The default is the token of `hf auth login`; public datasets need none."""

    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    """None: the public Hub, or what the client library is configured to use."""

    @cached_property
    def api(self) -> "HfApi":
        require_client()
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=self.token or None, library_name="nemo-gym")

    def dataset(self, repo_id: str, revision: str | None = None) -> "DatasetInfo":
        """Return what the Hub knows about a dataset, at a revision."""

        def ask() -> "DatasetInfo":
            at = f" at revision {revision!r}" if revision else ""
            with explain_errors(f"look up the dataset {repo_id!r}{at}"):
                return self.api.dataset_info(repo_id, revision=revision)

        return retry(ask)

    def make_url(self, repo_id: str) -> str:
        return f"{self.api.endpoint}/datasets/{repo_id}"


def require_client() -> None:
    """Raise HubError, naming the extra, if the client library is not installed."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise HubError(
            "the Hugging Face Hub needs the package `huggingface_hub`, which is not installed.\n"
            "hint: pip install 'nemo-gym[data]'"
        ) from error


@contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Turn whatever goes wrong with the Hub in this block into a HubError: could not `what`, and why."""
    require_client()
    from huggingface_hub.errors import HfHubHTTPError

    # Works for any HTTP library under the client: its errors and the client's share a base class.
    kinds: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, OSError, RuntimeError, ValueError)
    try:
        yield
    except GymError:
        raise
    except kinds as error:
        if is_local(error):
            raise
        raise HubError(f"could not {what}: {_explain(_find_root(error))}") from error


def retry(ask: Callable[[], T]) -> T:
    """Return the result of `ask`; retry a few times if the request got lost or the Hub is failing."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except HubError as error:
            if attempt == ATTEMPTS or not is_temporary(error):
                raise
            time.sleep(PAUSE_S)
    raise AssertionError("unreachable")


def is_temporary(error: GymError) -> bool:
    """Return whether an error may be temporary: no connection, or a Hub that is failing."""
    if error.__cause__ is None or isinstance(error.__cause__, (ImportError, ValueError)):
        return False
    status = status_of(error)
    return status is None or status >= 500


def is_local(error: BaseException) -> bool:
    """Return whether this machine is the cause: a full disk, a read-only folder."""
    from huggingface_hub.errors import HfHubHTTPError

    return (
        isinstance(error, OSError)
        and error.errno is not None
        and not isinstance(error, (HfHubHTTPError, ConnectionError, TimeoutError))
    )


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an error; None if there was no answer."""
    from huggingface_hub.errors import HfHubHTTPError

    cause = _find_root(error)
    return cause.response.status_code if isinstance(cause, HfHubHTTPError) else None


def _find_root(error: BaseException) -> BaseException:
    """Return the client library's error, which we or the library may have wrapped in a less specific one."""
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HfHubHTTPError):
        if not isinstance(cause, (HubError, RuntimeError)) or cause.__cause__ is None:
            return cause
        cause = cause.__cause__
    return cause or error


def _explain(error: BaseException) -> str:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return f"access to it must be granted first.\nhint: accept its conditions on its page; {_TOKEN_HINT}"
    if isinstance(error, RepositoryNotFoundError):
        return (
            "there is no such repository, or it is private and this token may not see it.\n"
            f"hint: check the name, `organization/name`; {_TOKEN_HINT}"
        )
    if isinstance(error, RevisionNotFoundError):
        return "the repository has no such revision.\nhint: a revision is a branch, a tag or a commit of the repository"
    if isinstance(error, EntryNotFoundError):
        return "the repository has no such file"
    if isinstance(error, OfflineModeIsEnabled):
        return "the client is configured to stay offline.\nhint: unset HF_HUB_OFFLINE"
    if isinstance(error, HfHubHTTPError):
        return _explain_refusal(error.response.status_code, error.server_message or "")
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ValueError):
        return text
    if "xet" in text.lower():
        return f"{text}.\nhint: set HF_HUB_DISABLE_XET=1 if this Hub has no Xet storage"
    return f"the connection failed ({text}).\nhint: check the network and HF_ENDPOINT, then run the command again"


def _explain_refusal(status: int, message: str) -> str:
    said = f" ({message})" if message else ""
    if status == 401:
        return f"the Hub does not accept the token: 401{said}.\nhint: {_TOKEN_HINT}; public datasets need none"
    if status == 403:
        return (
            f"this token lacks permission: 403{said}.\n"
            "hint: use a token that may write, or let the upload open a pull request with --create-pr"
        )
    if status == 429:
        return f"too many requests: 429{said}.\nhint: wait a while; with a token the limits are higher"
    if status >= 500:
        return f"the Hub is failing: {status}{said}.\nhint: try again later"
    return f"the Hub answered {status}{said}"


def make_repository_name(organization: str, prefix: str, domain: str, name: str) -> str:
    """Return `organization/prefix-domain-name`, without the empty parts."""
    return f"{organization}/{'-'.join(part for part in (prefix, domain, name) if part)}"


def make_collection_name(organization: str, title: str, slug: str) -> str:
    """Return `organization/title-in-lower-case-slug`, as in the URL of a collection."""
    return f"{organization}/{title.lower().replace(' ', '-')}-{slug}"


def name_server(config_path: str) -> str:
    """Return the server that a config belongs to: `a` of `resources_servers/a/configs/b.yaml`, in any folder."""
    parts = Path(config_path).parts
    if _SERVERS in parts[:-1]:
        return parts[len(parts) - parts[::-1].index(_SERVERS)]
    return parts[1] if len(parts) > 1 else ""


def find_domain(config_path: Path) -> str:
    """Return the lowercase domain of the first resources server in a config that has one; empty if none has."""
    plain: Any = OmegaConf.to_container(load_file(config_path).config, resolve=False)
    for instance in plain.values():
        for server in as_mapping(as_mapping(instance).get(_SERVERS)).values():
            if domain := as_text(as_mapping(server).get("domain")):
                return domain.lower()
    return ""
