# SPDX-License-Identifier: Apache-2.0
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel
from report import PIXEL, URL, check, raises, report

model = ChatAnthropic(model="m", base_url=URL, api_key="x", max_retries=0, max_tokens=99)


class Place(BaseModel):
    city: str
    people: int


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


@check("text")
def text():
    assert model.invoke("hi").content == "turn 1: hi"


@check("streaming")
def streaming():
    chunks = list(model.stream("hi"))
    assert "".join(chunk.text if isinstance(chunk.text, str) else chunk.text() for chunk in chunks) == "turn 1: hi"


@check("tools")
def tools():
    assert model.bind_tools([weather]).invoke("weather").tool_calls[0]["args"] == {"city": "Oslo"}


@check("parallel tools")
def parallel_tools():
    assert len(model.bind_tools([weather]).invoke("both").tool_calls) == 2


@check("structured output")
def structured():
    assert model.with_structured_output(Place).invoke("Paris").city == "Paris"


@check("images")
def images():
    image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    assert model.invoke([HumanMessage([{"type": "text", "text": "look"}, image])]).content == "a picture"


@check("errors")
def errors():
    raises("AuthenticationError", lambda: model.invoke("fail 401"))
    raises("BadRequestError", lambda: model.invoke("fail 400"))


@check("count_tokens")
def count_tokens():
    assert model.get_num_tokens_from_messages([HumanMessage("one two three")]) >= 1


report()
