# SPDX-License-Identifier: Apache-2.0
"""Holds replies against the types of whichever `openai` and `anthropic` are installed. It imports nothing of ours.

python check_types.py replies.json        prints what does not fit, as JSON
"""

import json
import sys
from pathlib import Path
from typing import Any

from anthropic.types import ErrorResponse, Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
from openai.types import ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

TYPES = {
    "responses": Response,
    "responses event": ResponseStreamEvent,
    "responses error": ErrorObject,
    "chat": ChatCompletion,
    "chat event": ChatCompletionChunk,
    "chat error": ErrorObject,
    "messages": Message,
    "messages event": RawMessageStreamEvent,
    "messages error": ErrorResponse,
    "model": Model,
    "info": ModelInfo,
    "count": MessageTokensCount,
}


def find_misfits(replies: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with each reply that is not of its type; further fields are allowed."""
    adapters = {kind: TypeAdapter(wanted) for kind, wanted in TYPES.items()}
    misfits: list[str] = []
    for reply in replies:
        text = reply["json"]
        if TYPES[reply["kind"]] is ErrorObject:
            text = json.dumps(json.loads(text)["error"])
        try:
            adapters[reply["kind"]].validate_json(text, strict=True)
        except ValidationError as error:
            problems = [f"{problem['loc']}: {problem['msg']}" for problem in error.errors()[:4]]
            misfits.append(f"{reply['of']}, {reply['kind']}: {problems} in {text[:600]}")
    return misfits


if __name__ == "__main__":
    print(json.dumps(find_misfits(json.loads(Path(sys.argv[1]).read_text()))))
