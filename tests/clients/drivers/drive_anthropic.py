# SPDX-License-Identifier: Apache-2.0
import anthropic
from pydantic import BaseModel
from report import PIXEL, URL, check, raises, report

client = anthropic.Anthropic(base_url=URL, api_key="x", max_retries=0)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "input_schema": CITY}


class Place(BaseModel):
    city: str
    people: int


def ask(content, turns=(), **more):
    return client.messages.create(
        model="m", max_tokens=99, messages=[{"role": "user", "content": content}, *turns], **more
    )


@check("text")
def text():
    assert ask("hi").content[0].text == "turn 1: hi"


@check("streaming")
def streaming():
    with client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]) as stream:
        assert "".join(stream.text_stream) == "turn 1: hi"
        assert stream.get_final_message().usage.output_tokens == 2


@check("tools")
def tools():
    (call,) = [block for block in ask("weather", tools=[TOOL]).content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    turns = [{"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    assert ask("weather", turns, tools=[TOOL]).content[0].text == "it is rain"


@check("parallel tools")
def parallel_tools():
    assert [block.input["city"] for block in ask("both", tools=[TOOL]).content] == ["Oslo", "Rome"]


@check("structured output")
def structured():
    asked = [{"role": "user", "content": "Paris"}]
    reply = client.messages.parse(model="m", max_tokens=99, messages=asked, output_format=Place)
    assert reply.parsed_output.city == "Paris"


@check("images")
def images():
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    reply = ask([{"type": "text", "text": "look"}, {"type": "image", "source": source}])
    assert reply.content[0].text == "a picture"


@check("reasoning")
def reasoning():
    reply = ask("think", thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in reply.content] == ["thinking", "text"]


@check("errors")
def errors():
    for status, name in (
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
    ):
        raises(name, lambda status=status: ask(f"fail {status}"))
    raises("BadRequestError", lambda: client.messages.create(model="m", max_tokens=9, messages=3))


@check("models")
def models():
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").display_name == "fake"


@check("count_tokens")
def count_tokens():
    asked = [{"role": "user", "content": "one two three"}]
    assert 1 <= client.messages.count_tokens(model="m", messages=asked).input_tokens <= 30


report()
