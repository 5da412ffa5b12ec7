# SPDX-License-Identifier: Apache-2.0
"""A tiny model with random weights and a tokenizer of letters, made on the spot."""

from collections.abc import Iterator
from typing import Any

import pytest

from nemo_gym.integrations.lent_models import LentModel, lend_model, take_back_model

TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def make_tokenizer() -> Any:
    """Return a tokenizer with a token for every character that the tests use."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(32, 127)]
    words = {word: number for number, word in enumerate(["<pad>", "<end>", "<unk>", *letters])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex("."), "isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", chat_template=TEMPLATE
    )


def make_model(seed: int = 0) -> Any:
    """Return a model that says anything."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=98,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=0,
        initializer_range=0.4,  # as random as it is, it should not find all tokens alike
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def tiny() -> Iterator[LentModel]:
    """The model, lent as `tiny`."""
    yield lend_model("tiny", make_model(), make_tokenizer())
    take_back_model("tiny")
