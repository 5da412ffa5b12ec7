# SPDX-License-Identifier: Apache-2.0
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from report import OPENAI_URL, PIXEL, check, raises, report

KNOWN = {"api_base": OPENAI_URL, "api_key": "x", "max_retries": 0}
# It looks up what a model can do by its name.
MODELS = [
    OpenAILike(model="m", is_chat_model=True, is_function_calling_model=True, **KNOWN),
    OpenAI(model="gpt-4o", **KNOWN),
    OpenAIResponses(model="gpt-4o", **KNOWN),
]


class Place(BaseModel):
    city: str
    people: int


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


TOOL = FunctionTool.from_defaults(weather)


def ask(text):
    return [ChatMessage(role="user", content=text)]


@check("text")
def text():
    for model in MODELS:
        assert model.chat(ask("hi")).message.content == "turn 1: hi"


@check("streaming")
def streaming():
    for model in MODELS:
        assert "".join(part.delta or "" for part in model.stream_chat(ask("hi"))) == "turn 1: hi"


@check("tools")
def tools():
    for model in MODELS:
        called = model.chat_with_tools([TOOL], user_msg="weather")
        (call,) = model.get_tool_calls_from_response(called)
        assert call.tool_kwargs == {"city": "Oslo"}


@check("parallel tools")
def parallel_tools():
    for model in MODELS:
        called = model.chat_with_tools([TOOL], user_msg="both", allow_parallel_tool_calls=True)
        assert len(model.get_tool_calls_from_response(called)) == 2


@check("structured output")
def structured():
    for model in MODELS[1:]:
        assert model.as_structured_llm(Place).chat(ask("Paris")).raw.city == "Paris"


@check("images")
def images():
    blocks = [TextBlock(text="look"), ImageBlock(image=PIXEL.encode(), image_mimetype="image/png")]
    for model in MODELS:
        assert model.chat([ChatMessage(role="user", blocks=blocks)]).message.content == "a picture"


@check("errors")
def errors():
    for model in MODELS:
        raises("AuthenticationError", lambda model=model: model.chat(ask("fail 401")))


report()
