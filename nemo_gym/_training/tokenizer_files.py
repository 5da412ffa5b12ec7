# SPDX-License-Identifier: Apache-2.0
"""Load a tokenizer, only to turn token ids back into text: nothing is retokenized."""

import os
from collections.abc import Sequence
from pathlib import Path

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._training.alignment import Decode

_FILE = "tokenizer.json"


def load_decode(path: str | os.PathLike[str]) -> Decode:
    """Return a function that turns ids into text with special tokens; `path` is a `tokenizer.json` or its folder."""
    given = Path(path).expanduser()
    file = given / _FILE if given.is_dir() else given
    if not file.is_file():
        raise ResultsError(
            f"there is no tokenizer {str(file)!r}.\n"
            f"hint: give the `{_FILE}` of the model, or its folder; `AutoTokenizer.from_pretrained(…).save_pretrained` "
            "of transformers writes one for any model, GGUF files included"
        )
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ResultsError(
            "reading a tokenizer needs the package `tokenizers`, which is not installed.\n"
            "hint: `pip install tokenizers`, or go without `--tokenizer`: then a retokenized history "
            "counts as forked"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ResultsError(
            f"{str(file)!r} is not a tokenizer that the package `tokenizers` can read: {error}\n"
            f"hint: it reads the `{_FILE}` of Hugging Face models"
        ) from error

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    return decode
