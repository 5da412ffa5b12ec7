# SPDX-License-Identifier: Apache-2.0
import json

import litellm
from report import OPENAI_URL, PIXEL, URL, check, raises, report

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
BOTH = {"openai/m": OPENAI_URL, "anthropic/m": URL}


def ask(content, model="openai/m", **more):
    asked = [{"role": "user", "content": content}]
    return litellm.completion(
        model=model, api_base=BOTH[model], api_key="x", messages=asked, num_retries=0, max_retries=0, **more
    )


@check("text")
def text():
    for model in BOTH:
        assert ask("hi", model).choices[0].message.content == "turn 1: hi"
    reply = litellm.responses(model="openai/m", api_base=OPENAI_URL, api_key="x", input="hi")
    assert reply.output[-1].content[0].text == "turn 1: hi"
    assert reply.usage.input_tokens == 3


@check("streaming")
def streaming():
    for model in BOTH:
        chunks = list(ask("hi", model, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "turn 1: hi"
    events = litellm.responses(model="openai/m", api_base=OPENAI_URL, api_key="x", input="hi", stream=True)
    assert [event.type for event in events][-1] == "response.completed"


@check("tools")
def tools():
    (call,) = ask("weather", tools=[TOOL]).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}


@check("parallel tools")
def parallel_tools():
    assert len(ask("both", tools=[TOOL]).choices[0].message.tool_calls) == 2


@check("structured output")
def structured():
    schema = {"name": "place", "schema": CITY}
    reply = ask("Paris", response_format={"type": "json_schema", "json_schema": schema})
    assert json.loads(reply.choices[0].message.content)["city"] == "Paris"


@check("images")
def images():
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert ask([{"type": "text", "text": "look"}, image]).choices[0].message.content == "a picture"


@check("errors")
def errors():
    raises("AuthenticationError", lambda: ask("fail 401"))
    raises("RateLimitError", lambda: ask("fail 429"))
    raises("ContextWindowExceededError", lambda: ask("fail 400"))


report()
