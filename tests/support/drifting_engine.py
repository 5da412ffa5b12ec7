# SPDX-License-Identifier: Apache-2.0
"""An inference engine for tests with a tokenizer and a chat template of its own, and with bad habits.

It plays a model that looks up the weather of some cities, thinking aloud, and then answers. What it writes it cuts into
tokens at random, so that a history that travels as text comes back in other tokens. The first word of the user's first
message is its habit in that rollout, the second the name of the rollout, and the third how many cities there are:

    faithful         begins the prompt with the tokens that the history carries, as NeMo RL's server does
    prefix           begins the prompt with `required_prefix_token_ids`, if it is told; otherwise as the next one
    retokenizes      tokenizes the whole history anew
    alternates       is faithful in every second turn
    drops_reasoning  leaves the thoughts of earlier turns out of the prompt
    reformats        writes the arguments of earlier calls with other spaces
    loses_log_probs  sends no log-probs in its second turn

    async with DriftingEngine() as engine:
        model = build_server(VLLMModel, base_url=engine.base_url, ...)

`engine.calls["name"]` lists what it read and wrote in a rollout: the truth to compare with.
"""

import asyncio
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from nemo_gym._servers.http_session import close_global_aiohttp_client

START, END = "<|im_start|>", "<|im_end|>"
CITIES = ("Zürich", "Oslo", "Kraków", "Lima")
_WORDS = (
    START,
    END,
    *CITIES,
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "The weather",
    " in ",
    "cold",
    "get_",
)
_PIECES = [word.encode() for word in _WORDS] + [bytes([one]) for one in range(256)]
_ID_OF = {piece: number for number, piece in enumerate(_PIECES)}
_LONGEST_FIRST = re.compile(b"|".join(re.escape(p) for p in sorted(_PIECES, key=len, reverse=True)), re.S)
_SPECIAL = re.compile(f"({re.escape(START)}|{re.escape(END)})")
_REPLY = re.compile(r"(?:<think>(?P<thought>.*?)</think>)?(?P<text>.*?)(?:<tool_call>(?P<call>.*)</tool_call>)?", re.S)


def encode(text: str) -> list[int]:
    """Return the tokens of `text` as the tokenizer gives them: always the longest that fits."""
    return [_ID_OF[found.group()] for found in _LONGEST_FIRST.finditer(text.encode())]


def decode(ids: Sequence[int]) -> str:
    return b"".join(_PIECES[one] for one in ids).decode(errors="replace")


def cut_at_random(text: str, rng: random.Random) -> list[int]:
    """Return tokens that a model may have written `text` in: special ones as they are, words whole or in bytes."""
    ids: list[int] = []
    for part in _SPECIAL.split(text):
        for token in encode(part):
            whole = part in (START, END) or rng.random() < 0.5
            ids += [token] if whole else [_ID_OF[bytes([one])] for one in _PIECES[token]]
    return ids


class EngineCall(NamedTuple):
    """What the engine read and wrote."""

    prompt_ids: list[int]
    generated_ids: list[int]
    log_probs: list[float]


class DriftingEngine:
    """The engine, running inside `async with`."""

    def __init__(self, *, detokenizes: bool = True, keeps_connections: bool = True) -> None:
        """`detokenizes`: it says the text of token ids."""
        self._detokenizes, self._keeps_connections = detokenizes, keeps_connections
        self.calls: dict[str, list[EngineCall]] = defaultdict(list)
        self.detokenized = 0
        self._asked, self._change = 0, asyncio.Condition()
        self.may_answer = asyncio.Event()
        """As long as it is not set, nobody gets an answer."""
        self.may_answer.set()

    async def __aenter__(self) -> "DriftingEngine":
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._serve(self._complete))
        app.router.add_post("/tokenize", self._serve(lambda body: {"tokens": self._read_prompt(body)}))
        if self._detokenizes:
            app.router.add_post("/detokenize", self._serve(self._detokenize))
        # A caller that hangs up is noticed.
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_global_aiohttp_client()
        await self._runner.cleanup()

    def _serve(self, answer: Callable[[Any], Any]) -> Any:
        async def handle(request: web.Request) -> web.Response:
            body = await request.json()
            await self._count(1)
            try:
                await self.may_answer.wait()
                reply = web.json_response(answer(body))
                if not self._keeps_connections:
                    reply.force_close()
                return reply
            finally:
                await self._count(-1)

        return handle

    async def _count(self, more: int) -> None:
        async with self._change:
            self._asked += more
            self._change.notify_all()

    async def wait_until_asked(self, count: int) -> None:
        """Wait until so many answers are asked for at once."""
        async with asyncio.timeout(300), self._change:
            await self._change.wait_for(lambda: self._asked == count)

    def _detokenize(self, body: dict[str, Any]) -> dict[str, str]:
        self.detokenized += 1
        return {"prompt": decode(body["tokens"])}

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        habit, name, cities = _read_orders(body["messages"])
        turn = sum(message["role"] == "tool" for message in body["messages"])
        rng = random.Random(f"{name} {turn}")
        text = _write_turn(turn, cities)
        ids = cut_at_random(text + END, rng)
        call = EngineCall(self._read_prompt(body), ids, [-rng.random() for _ in ids])
        self.calls[name].append(call)
        return _build_completion(call, _parse_reply(text, turn), turn, loses=habit == "loses_log_probs" and turn == 1)

    def _read_prompt(self, body: dict[str, Any]) -> list[int]:
        """Return the tokens of a conversation, as the habit of its rollout wants them."""
        messages = body["messages"]
        habit, _, _ = _read_orders(messages)
        carriers = [place for place, message in enumerate(messages) if "generation_token_ids" in message]
        prefix = body.get("required_prefix_token_ids") if habit == "prefix" else None
        is_faithful = habit in ("faithful", "loses_log_probs") or (habit == "alternates" and len(carriers) % 2)
        if is_faithful and carriers:
            last = messages[carriers[-1]]
            prefix = last["prompt_token_ids"] + last["generation_token_ids"]
        if prefix is None or not carriers:
            return encode(_render(messages, habit) + f"{START}assistant\n")
        rest = _render(messages[carriers[-1] + 1 :], habit)
        return [*prefix, *encode(f"\n{rest}{START}assistant\n")]


def _read_orders(messages: list[dict[str, Any]]) -> tuple[str, str, int]:
    content = next(message["content"] for message in messages if message["role"] == "user")
    text = content if isinstance(content, str) else content[0]["text"]
    habit, name, cities = text.split()[:3]
    return habit, name, int(cities)


def _write_turn(turn: int, cities: int) -> str:
    if turn >= cities:
        return f"<think>I know {cities} of them 🌧.</think>The weather is cold in all of them."
    arguments = json.dumps({"city": CITIES[turn % len(CITIES)]}, ensure_ascii=False)
    call = json.dumps({"name": "get_weather"})[:-1] + f', "arguments": {arguments}}}'
    return f"<think>Next is {CITIES[turn % len(CITIES)]}.</think>Let me see…<tool_call>{call}</tool_call>"


def _parse_reply(text: str, turn: int) -> dict[str, Any]:
    found = _REPLY.fullmatch(text)
    assert found is not None
    message: dict[str, Any] = {"role": "assistant", "content": found["text"], "reasoning_content": found["thought"]}
    if found["call"]:
        arguments = found["call"].partition('"arguments": ')[2].removesuffix("}")
        function = {"name": "get_weather", "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": function}]
    return message


def _render(messages: list[dict[str, Any]], habit: str) -> str:
    """Return messages in the chat template."""
    text = ""
    for message in messages:
        content = message.get("content") or ""
        said = content if isinstance(content, str) else "".join(part["text"] for part in content)
        thought = message.get("reasoning_content")
        if thought and habit != "drops_reasoning":
            said = f"<think>{thought}</think>{said}"
        for call in message.get("tool_calls") or []:
            arguments = call["function"]["arguments"]
            if habit == "reformats":
                arguments = json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
            said += f'<tool_call>{{"name": "{call["function"]["name"]}", "arguments": {arguments}}}</tool_call>'
        text += f"{START}{message['role']}\n{said}{END}\n"
    return text


def _build_completion(call: EngineCall, message: dict[str, Any], turn: int, *, loses: bool) -> dict[str, Any]:
    """Return the answer, with the tokens in one of the three places in which engines put them."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    top: dict[str, Any] = {}
    pairs = zip(call.generated_ids, call.log_probs, strict=True)
    spelled = [
        {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []} for token, value in pairs
    ]
    if turn % 3 == 0 and not loses:
        generated = {"generation_token_ids": call.generated_ids, "generation_log_probs": call.log_probs}
        message = {**message, "prompt_token_ids": call.prompt_ids, **generated}
    elif turn % 3 == 1:
        top, choice["token_ids"] = {"prompt_token_ids": call.prompt_ids}, call.generated_ids
    if not loses:
        choice["logprobs"] = {"content": spelled}
    read, written = len(call.prompt_ids), len(call.generated_ids)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    common = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "policy", "usage": usage, **top}
    return {**common, "choices": [{**choice, "message": message}]}
