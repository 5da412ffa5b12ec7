# SPDX-License-Identifier: Apache-2.0
import anthropic
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from report import OPENAI_URL, PIXEL, URL, check, raises, report


def make_models():
    # Made anew for each check: a client belongs to the event loop that used it first.
    openai = OpenAIProvider(base_url=OPENAI_URL, api_key="x")
    client = anthropic.AsyncAnthropic(base_url=URL, api_key="x", max_retries=0)
    return [
        OpenAIChatModel("m", provider=openai),
        OpenAIResponsesModel("m", provider=openai),
        AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client)),
    ]


class Place(BaseModel):
    city: str
    people: int


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


@check("text")
async def text():
    for model in make_models():
        assert (await Agent(model).run("hi")).output == "turn 1: hi"


@check("streaming")
async def streaming():
    for model in make_models():
        async with Agent(model).run_stream("hi") as stream:
            assert await stream.get_output() == "turn 1: hi"


@check("tools")
async def tools():
    for model in make_models():
        assert (await Agent(model, tools=[weather]).run("weather")).output == "it is rain in Oslo"


@check("parallel tools")
async def parallel_tools():
    for model in make_models():
        reply = await Agent(model, tools=[weather]).run("both")
        assert reply.output == "it is rain in Oslo and rain in Rome"


@check("structured output")
async def structured():
    for model in make_models():
        assert (await Agent(model, output_type=Place).run("Paris")).output.city == "Paris"
    for model in make_models()[:2]:
        assert (await Agent(model, output_type=NativeOutput(Place)).run("Paris")).output.city == "Paris"


@check("images")
async def images():
    from base64 import b64decode

    image = BinaryContent(b64decode(PIXEL), media_type="image/png")
    for model in make_models():
        assert (await Agent(model).run(["look", image])).output == "a picture"


@check("reasoning")
async def reasoning():
    for model in make_models()[1:]:
        parts = [part.part_kind for part in (await Agent(model).run("think")).all_messages()[-1].parts]
        assert "thinking" in parts


@check("errors")
def errors():
    for number in range(3):
        told = raises("ModelHTTPError", lambda number=number: Agent(make_models()[number]).run_sync("fail 401"))
        assert told.status_code == 401


report()
