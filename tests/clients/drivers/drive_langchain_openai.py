# SPDX-License-Identifier: Apache-2.0
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from report import OPENAI_URL, PIXEL, check, raises, report

MODELS = [
    ChatOpenAI(model="m", base_url=OPENAI_URL, api_key="x", max_retries=0, use_responses_api=by_responses)
    for by_responses in (False, True)
]


class Place(BaseModel):
    city: str
    people: int


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def read(message):
    return message.text if isinstance(message.text, str) else message.text()


@check("text")
def text():
    for model in MODELS:
        reply = model.invoke("hi")
        assert read(reply) == "turn 1: hi"
        assert reply.usage_metadata["input_tokens"] == 3


@check("streaming")
def streaming():
    for model in MODELS:
        assert "".join(map(read, model.stream("hi"))) == "turn 1: hi"


@check("tools")
def tools():
    for model in MODELS:
        able = model.bind_tools([weather])
        called = able.invoke("weather")
        (call,) = called.tool_calls
        result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
        assert read(able.invoke([HumanMessage("weather"), called, result])) == "it is rain in Oslo"


@check("parallel tools")
def parallel_tools():
    for model in MODELS:
        assert len(model.bind_tools([weather]).invoke("both").tool_calls) == 2


@check("structured output")
def structured():
    for model in MODELS:
        assert model.with_structured_output(Place).invoke("Paris").city == "Paris"


@check("images")
def images():
    image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    for model in MODELS:
        assert read(model.invoke([HumanMessage([{"type": "text", "text": "look"}, image])])) == "a picture"


@check("errors")
def errors():
    for model in MODELS:
        raises("AuthenticationError", lambda model=model: model.invoke("fail 401"))
        raises("BadRequestError", lambda model=model: model.invoke("fail 400"))


report()
