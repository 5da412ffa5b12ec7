# SPDX-License-Identifier: Apache-2.0
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel
from report import OPENAI_URL, PIXEL, check, report

set_tracing_disabled(True)


def make_models():
    client = AsyncOpenAI(base_url=OPENAI_URL, api_key="x", max_retries=0)
    return [kind(model="m", openai_client=client) for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel)]


class Place(BaseModel):
    city: str
    people: int


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


@check("text")
async def text():
    for model in make_models():
        assert (await Runner.run(Agent("a", model=model), "hi")).final_output == "turn 1: hi"


@check("streaming")
async def streaming():
    for model in make_models():
        run = Runner.run_streamed(Agent("a", model=model), "hi")
        events = [event.type async for event in run.stream_events()]
        assert "raw_response_event" in events
        assert run.final_output == "turn 1: hi"


@check("tools")
async def tools():
    for model in make_models():
        run = await Runner.run(Agent("a", model=model, tools=[weather]), "weather")
        assert run.final_output == "it is rain in Oslo"


@check("parallel tools")
async def parallel_tools():
    for model in make_models():
        run = await Runner.run(Agent("a", model=model, tools=[weather]), "both")
        assert run.final_output == "it is rain in Oslo and rain in Rome"


@check("structured output")
async def structured():
    for model in make_models():
        assert (await Runner.run(Agent("a", model=model, output_type=Place), "Paris")).final_output.city == "Paris"


@check("images")
async def images():
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
    ]
    for model in make_models():
        run = await Runner.run(Agent("a", model=model), [{"role": "user", "content": parts}])
        assert run.final_output == "a picture"


@check("errors")
async def errors():
    for model in make_models():
        try:
            await Runner.run(Agent("a", model=model), "fail 401")
        except Exception as error:
            assert type(error).__name__ == "AuthenticationError"  # noqa: PT017  there is no pytest here
        else:
            raise AssertionError("nothing was raised")


@check("continue")
async def go_on():
    model = make_models()[0]
    first = await Runner.run(Agent("a", model=model), "hi")
    second = await Runner.run(Agent("a", model=model), "again", previous_response_id=first.last_response_id)
    assert second.final_output == "turn 2: again"


report()
