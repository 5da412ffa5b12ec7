# SPDX-License-Identifier: Apache-2.0
"""`ng_run` in a folder of the user's, with a model endpoint behind it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym import PARENT_DIR
from tests.support.eval_runs import fake_endpoint
from tests.support.small_servers import free_port
from tests.support.warm_start import WarmProcess

SERVER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
EXAMPLES = PARENT_DIR / "resources_servers/example_single_tool_call/data/example.jsonl"
_NG_RUN = """
import sys
from nemo_gym.cli import legacy
sys.argv[0] = "ng_run"
sys.exit(legacy.main())
"""


@dataclass(frozen=True)
class Project:
    """A folder in which servers run."""

    folder: Path
    tokens: Path
    started: str
    """What `ng_run` said until all servers were ready."""


@contextmanager
def ng_run(folder: Path, *words: str, policy_in_env_yaml: bool = True) -> Iterator[Project]:
    """Run `ng_run` with `words` until the context ends; `{url}` in a word is the address of the model endpoint."""
    tokens = folder / "tokens"
    with fake_endpoint() as endpoint:
        url = f"{endpoint.url}/v1"
        policy = f"policy_base_url: {url}\npolicy_api_key: sk-hidden\npolicy_model_name: fake\n"
        head = f"head_server: {{host: 127.0.0.1, port: {free_port()}}}\n"
        (folder / "env.yaml").write_text(head + (policy if policy_in_env_yaml else ""))
        process = WarmProcess(
            [word.replace("{url}", url) for word in words],
            cwd=folder,
            env={**os.environ, "NEMO_GYM_RUN_TOKEN_DIR": str(tokens)},
            stderr=subprocess.PIPE,
            program=_NG_RUN,
        )
        assert process.stderr is not None
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if "servers ready!" in line:
                    break
            assert "servers ready!" in "".join(said), "".join(said)
            yield Project(folder, tokens, "".join(said))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)
            process.stderr.close()
