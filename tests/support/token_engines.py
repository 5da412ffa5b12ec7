# SPDX-License-Identifier: Apache-2.0
"""A tokenizer with a chat template, and an engine that follows a script: stand-ins for those of a trainer.

The tokenizer writes pairs of characters, the engine single ones. So a reply that is tokenized again has other ids than
the engine wrote, and a test can tell.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

SPECIAL = re.compile(r"(<\|im_start\|>|<\|im_end\|>|<tool_call>|</tool_call>|<end_of_turn>|<eot>|</s>)")
END = "<|im_end|>"


class PairTokenizer:
    """ChatML with tools in the form of Hermes; has the methods of a Hugging Face tokenizer that trainers call."""

    def __init__(self):
        self._ids, self._texts = {}, []
        self.end_id = self._id(END)
        self._id("<|im_start|>")

    def _id(self, text):
        if text not in self._ids:
            self._ids[text] = len(self._texts)
            self._texts.append(text)
        return self._ids[text]

    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens, "the chat template writes the special tokens"
        ids = []
        for piece in SPECIAL.split(text):
            if SPECIAL.fullmatch(piece):
                ids.append(self._id(piece))
            else:
                ids += [self._id(piece[at : at + 2]) for at in range(0, len(piece), 2)]
        return ids

    def spell(self, text):
        """The ids as an engine may well choose them: one for each character."""
        return [
            each
            for piece in SPECIAL.split(text)
            for each in ([self._id(piece)] if SPECIAL.fullmatch(piece) else map(self._id, piece))
        ]

    def decode(self, token_ids, skip_special_tokens=False):
        texts = [self._texts[each] for each in token_ids]
        return "".join(text for text in texts if not (skip_special_tokens and text.startswith("<|")))

    def apply_chat_template(self, conversation, tools=None, tokenize=True, add_generation_prompt=False, **settings):
        assert not tokenize
        parts = []
        if tools:
            parts.append(f"<|im_start|>system\nTools: {json.dumps(tools)}{END}\n")
        for message in conversation:
            calls = "".join(
                f"<tool_call>{json.dumps(call['function'], sort_keys=True)}</tool_call>"
                for call in message.get("tool_calls") or ()
            )
            parts.append(f"<|im_start|>{message['role']}\n{message['content']}{calls}{END}\n")
        return "".join(parts) + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def call(name, **arguments):
    """What a model writes to call a tool, in its own spacing."""
    return f'<tool_call>{{"name":"{name}",  "arguments":{json.dumps(arguments)}}}</tool_call>'


@dataclass
class ScriptedEngine:
    """Writes what `reply` says for the text of a prompt and the number of replies in it."""

    tokenizer: PairTokenizer
    reply: Callable[[str, int], str]
    calls: list[tuple[list[int], list[int], list[float]]] = field(default_factory=list)
    """Every prompt with what was written, and how likely that was."""

    def write(self, prompt_ids, limit=None):
        prompt = self.tokenizer.decode(prompt_ids)
        number = prompt.count("<|im_start|>assistant\n") - 1
        ids = [*self.tokenizer.spell(self.reply(prompt, number)), self.tokenizer.end_id][:limit]
        log_probs = [-0.001 * (len(self.calls) * 100 + place + 1) for place in range(len(ids))]
        self.calls.append((list(prompt_ids), ids, log_probs))
        return ids, log_probs
