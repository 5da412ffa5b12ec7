# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that needs no download: each byte is a token. Environments load it by the name `bytes`.

python responses_api_agents/atropos_env/byte_tokenizer.py FOLDER      writes it, for use with the library alone
"""

import atexit
import functools
import shutil
import sys
import tempfile
from pathlib import Path

NAME = "bytes"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=_CHAT_TEMPLATE
    )
    fast.save_pretrained(folder)


@functools.cache
def provide_tokenizer() -> Path:
    """Return a folder with the tokenizer, which exists as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="byte_tokenizer_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_tokenizer(folder)
    return folder


if __name__ == "__main__":
    write_tokenizer(Path(sys.argv[1]))
