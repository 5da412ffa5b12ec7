# SPDX-License-Identifier: Apache-2.0
"""A real Hugging Face tokenizer, made on the spot: byte-level BPE with ChatML and tools in the form of Hermes."""

TEMPLATE = """
{%- if tools %}{{- '<|im_start|>system\\nTools:\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""".strip()
TEXTS = ["Look up the value of each synonym, and hand them in in order. " * 3, '{"name": "get_synonym_value"} ' * 3]


def make_tokenizer():
    """The tokenizer; texts have many spellings in its tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("</tool_call>", special=False)])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def spell(tokenizer, text):
    """The ids of a text, letter by letter: as the model may well write it, and the tokenizer never would."""
    ids = []
    for letter in text:
        ids += tokenizer.encode(letter, add_special_tokens=False)
    return ids


class Script:
    """Solves a task with the ids of `spell`, and keeps what it was asked and what it wrote."""

    def __init__(self, tokenizer, reply):
        self.tokenizer, self.reply, self.calls = tokenizer, reply, []

    def write(self, prompt_ids, limit=None):
        prompt = self.tokenizer.decode(prompt_ids)
        number = prompt.count("<|im_start|>assistant\n") - 1
        ids = [*spell(self.tokenizer, self.reply(prompt, number)), self.tokenizer.eos_token_id][:limit]
        log_probs = [-0.001 * (place + 1) for place in range(len(ids))]
        self.calls.append((list(prompt_ids), ids, log_probs))
        return ids, log_probs
