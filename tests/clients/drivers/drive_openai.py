# SPDX-License-Identifier: Apache-2.0
import openai
from pydantic import BaseModel
from report import OPENAI_URL, PIXEL, check, raises, report

client = openai.OpenAI(base_url=OPENAI_URL, api_key="x", max_retries=0)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


class Place(BaseModel):
    city: str
    people: int


def user(text):
    return [{"role": "user", "content": text}]


@check("text")
def text():
    assert client.responses.create(model="m", input="hi").output_text == "turn 1: hi"
    said = client.chat.completions.create(model="m", messages=user("hi"))
    assert said.choices[0].message.content == "turn 1: hi"


@check("streaming")
def streaming():
    with client.responses.stream(model="m", input="hi") as stream:
        kinds = [event.type for event in stream]
        assert "response.output_text.delta" in kinds
        assert stream.get_final_response().output_text == "turn 1: hi"
    chunks = client.chat.completions.create(model="m", messages=user("hi"), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "turn 1: hi"


@check("tools")
def tools():
    first = client.responses.create(model="m", input="weather", tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    asked = [*user("weather"), call.model_dump(exclude_none=True), result]
    assert client.responses.create(model="m", input=asked, tools=[TOOL]).output_text == "it is rain"
    said = client.chat.completions.create(model="m", messages=user("weather"), tools=[CHAT_TOOL]).choices[0].message
    told = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "rain"}
    turns = [*user("weather"), said.model_dump(exclude_none=True), told]
    last = client.chat.completions.create(model="m", messages=turns, tools=[CHAT_TOOL])
    assert last.choices[0].message.content == "it is rain"


@check("parallel tools")
def parallel_tools():
    reply = client.responses.create(model="m", input="both", tools=[TOOL])
    assert len([item for item in reply.output if item.type == "function_call"]) == 2
    with client.chat.completions.stream(model="m", messages=user("both"), tools=[CHAT_TOOL]) as stream:
        assert len(stream.get_final_completion().choices[0].message.tool_calls) == 2


@check("structured output")
def structured():
    assert client.responses.parse(model="m", input="Paris", text_format=Place).output_parsed.city == "Paris"
    said = client.chat.completions.parse(model="m", messages=user("Paris"), response_format=Place)
    assert said.choices[0].message.parsed.people == 2100000


@check("images")
def images():
    url = f"data:image/png;base64,{PIXEL}"
    parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    asked = [{"role": "user", "content": parts}]
    assert client.responses.create(model="m", input=asked).output_text == "a picture"
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
    assert said.choices[0].message.content == "a picture"


@check("reasoning")
def reasoning():
    reply = client.responses.create(model="m", input="think", reasoning={"effort": "low", "summary": "auto"})
    assert reply.output[0].summary[0].text == "let me see"
    assert reply.output_text == "turn 1: think"


@check("errors")
def errors():
    for status, name in (
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
    ):
        raises(name, lambda status=status: client.responses.create(model="m", input=f"fail {status}"))
        raises(name, lambda status=status: client.chat.completions.create(model="m", messages=user(f"fail {status}")))
    told = raises("BadRequestError", lambda: client.responses.create(model="m", input="fail 400"))
    assert told.code == "context_length_exceeded"


@check("retrieve")
def retrieve():
    first = client.responses.create(model="m", input="hi")
    assert client.responses.retrieve(first.id).output_text == "turn 1: hi"
    raises("NotFoundError", lambda: client.responses.retrieve("resp_unknown"))


@check("continue")
def go_on():
    first = client.responses.create(model="m", input="hi")
    second = client.responses.create(model="m", input="again", previous_response_id=first.id)
    assert second.output_text == "turn 2: again"
    with client.responses.stream(model="m", input="more", previous_response_id=second.id) as stream:
        assert stream.get_final_response().output_text == "turn 3: more"


@check("models")
def models():
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"
    raises("NotFoundError", lambda: client.models.retrieve("other"))


report()
