# SPDX-License-Identifier: Apache-2.0
"""Why a rollout has no reward: one value that names the cause, made where it happened and passed outward unchanged.

A server that fails puts it into a header of its error reply; the next server passes on the one it received, so that
whoever asked for the rollout learns the first cause and not the last symptom.
"""

import asyncio
import dis
import json
import traceback
from dataclasses import asdict, dataclass
from typing import Literal
from urllib.parse import urlsplit

import aiohttp

from nemo_gym._transport.call_errors import InvalidServerReply, ReplyTooLarge, ServerResponseError, ServerUnreachable
from nemo_gym._transport.retries import NOT_NOW_STATUSES
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.rollout_paths import split_rollout_prefix
from nemo_gym._wire.schema.format_errors import InvalidModelReply
from nemo_gym.errors import HandlerExit, JudgeError, RolloutFailure, ServerBlocked, ServerCallError

FailureKind = Literal[
    "model_endpoint",
    "model_reply_invalid",
    "agent",
    "tool_server",
    "tool_crashed",
    "session_lost",
    "verifier",
    "timeout",
    "worker_died",
    "cancelled",
]
HEADER = "x-nemo-gym-failure"
"""Carries the failure of an error reply."""
REFUSED = ("401", "403", "404")
"""Causes that mean: the endpoint does not let this user in, or has no such model."""
NOT_THERE = ("refused", "unknown host", "TLS", "not HTTP", "redirect")
"""Causes that mean: nothing, or something else, answers at the URL."""
_MODEL_PATHS = ("/responses", "/chat/completions", "/messages", "/completions", "/tokenize", "/models")
_MESSAGE_LIMIT = 2000
_TRACEBACK_LIMIT = 4000
_HEADER_BYTES = 7000  # aiohttp accepts lines of 8,190


@dataclass(frozen=True)
class Failure:
    """What ended a rollout."""

    kind: FailureKind
    boundary: str
    """The call that failed: where it went."""
    retryable: bool
    message: str
    cause: str = ""
    """In a word, for counting: the answered status, such as `429`, or the kind of a `Trouble`."""
    traceback: str = ""
    """Where a server's own code failed: its innermost frames."""
    ends_rollout: bool = False
    """Whether the rollout cannot be scored in any case: this must not be shown to a model as a tool's answer."""

    def __post_init__(self) -> None:
        # Masked here, so that no file, header or screen that shows a failure has to do it.
        for name in ("boundary", "message", "traceback"):
            object.__setattr__(self, name, KNOWN_SECRETS.mask(getattr(self, name)))

    @property
    def is_refused(self) -> bool:
        """Whether the model's endpoint refuses the user or the model: every other call will fail the same way."""
        return self.kind == "model_endpoint" and self.cause in REFUSED

    @property
    def is_unreachable(self) -> bool:
        """Whether nothing, or something else, answers at the model's URL."""
        return self.kind == "model_endpoint" and self.cause in NOT_THERE

    def encode(self) -> str:
        """Return it as a header value, of a size that HTTP clients accept."""
        fields = {**asdict(self), "message": self.message[:_MESSAGE_LIMIT]}
        while len(header := json.dumps(fields)) > _HEADER_BYTES:
            # The end of a traceback matters, and the beginning of a message.
            if traceback_text := fields["traceback"]:
                fields["traceback"] = traceback_text[-(len(traceback_text) // 2) :].partition("\n")[2]
            else:
                fields["message"] = fields["message"][: len(fields["message"]) // 2]
        return header


def decode_failure(header: str | None) -> Failure | None:
    """Return the failure in a header value; None if there is none, or it is not ours."""
    if not header:
        return None
    try:
        return Failure(**json.loads(header))
    except (ValueError, TypeError):
        return None


def build_failure(error: BaseException, own_kind: FailureKind, boundary: str) -> Failure:
    """Return the failure that `error` stands for; one without another origin is of `own_kind`, at `boundary`."""
    if isinstance(error, ServerResponseError):
        return decode_failure(error.failure) or _classify_status(error)
    if isinstance(error, InvalidModelReply):
        return Failure("model_reply_invalid", boundary, True, str(error))
    if isinstance(error, ServerBlocked):
        return Failure("timeout", boundary, True, str(error))
    if isinstance(error, TimeoutError):
        return Failure("timeout", _find_url(error) or boundary, True, str(error) or "the deadline passed")
    if isinstance(error, ServerUnreachable):
        return Failure(_classify_url(error.url), _find_url(error), True, str(error), error.trouble)
    if isinstance(error, HandlerExit):
        where = describe_error_with_place(error)
        return Failure(own_kind, boundary, False, where, "exit", _format_traceback(error), ends_rollout=True)
    if isinstance(error, ReplyTooLarge):
        kind = _classify_url(error.url)
        if kind == "model_endpoint":
            kind = "model_reply_invalid"
        return Failure(kind, error.url, False, str(error), "too large")
    if isinstance(error, JudgeError):
        return Failure("verifier", boundary, True, str(error))
    if isinstance(error, RolloutFailure):
        kind = pick_kind(error.kind, own_kind)
        return Failure(kind, _find_url(error) or boundary, error.retryable, error.message, ends_rollout=True)
    if isinstance(error, ServerCallError) and (place := _find_url(error)):
        if _classify_url(place) == "model_endpoint":
            # Another sample may be valid, unless what the endpoint writes is no JSON that can be read.
            retryable = not (isinstance(error, InvalidServerReply) and error.has_unusable_value)
            return Failure("model_reply_invalid", place, retryable, str(error))
        return Failure(_classify_url(place), place, False, str(error))
    refusal = _find_refusal(error, own_kind)
    kind = own_kind
    if refusal:
        kind = "model_endpoint"
    return Failure(kind, boundary, False, describe_error_with_place(error), refusal, _format_traceback(error))


def _format_traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error)).rstrip()
    if len(text) <= _TRACEBACK_LIMIT:
        return text
    return "…\n" + text[-_TRACEBACK_LIMIT:].partition("\n")[2]


def convert_exit(raised: BaseException) -> Exception | ServerBlocked:
    """Return what someone's code raised as an error that ends one call only.

    Raise it instead if it is nobody's mistake: the running task is being cancelled, or its coroutine closed.
    """
    if isinstance(raised, Exception | ServerBlocked):
        return raised
    task = asyncio.current_task()
    is_cancelled = isinstance(raised, asyncio.CancelledError) and (task is None or task.cancelling() > 0)
    if is_cancelled or (isinstance(raised, GeneratorExit) and not _was_raised_by_code(raised)):
        raise raised
    error = HandlerExit(repr(raised)).with_traceback(raised.__traceback__)
    error.__cause__ = raised
    return error


def _was_raised_by_code(error: BaseException) -> bool:
    """Return whether `error` comes from a `raise`, and not from closing a coroutine, where it appears at an `await`."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    return dis.opname[innermost.tb_frame.f_code.co_code[innermost.tb_lasti]] == "RAISE_VARARGS"


def describe_error_with_place(error: BaseException) -> str:
    """Return the end of a traceback: the error, and the line of code that raised it."""
    told = traceback.TracebackException(type(error), error, None)
    told.__notes__ = []  # such as the traceback of another process, whose last line says little
    text = list(told.format_exception_only())[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} (in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})"


def pick_kind(kind: str, otherwise: FailureKind) -> FailureKind:
    """Return `kind` if it is one of ours, else `otherwise`."""
    return kind if kind in FailureKind.__args__ else otherwise  # type: ignore[attr-defined, return-value]


def _find_refusal(error: BaseException, own_kind: FailureKind) -> str:
    """Return the status with which a model's endpoint refused a call made by another library, else an empty string.

    aiohttp's errors have `status` and `request_info`; those of openai, and of what is built on it, `status_code` and
    `request`.
    """
    if isinstance(error, aiohttp.ClientResponseError):
        status = error.status
        url = str(error.request_info.real_url) if error.request_info else ""
    else:
        status = getattr(error, "status_code", 0)
        url = str(getattr(getattr(error, "request", None), "url", ""))
    is_models = own_kind == "model_endpoint" or (url and _classify_url(url) == "model_endpoint")
    return str(status) if is_models and str(status) in REFUSED else ""


def _classify_status(error: ServerResponseError) -> Failure:
    kind = _classify_url(error.url)
    retryable = error.status in NOT_NOW_STATUSES or (error.status >= 500 and kind == "model_endpoint")
    return Failure(kind, error.url, retryable, str(error), str(error.status))


def _find_url(error: BaseException) -> str:
    return str(getattr(error, "url", "") or getattr(error, "path", ""))


def _classify_url(url: str) -> FailureKind:
    path = split_rollout_prefix(urlsplit(url).path).rest
    if path.endswith(_MODEL_PATHS):
        return "model_endpoint"
    if path == "/run":
        return "agent"
    return "verifier" if path == "/verify" else "tool_server"
