# SPDX-License-Identifier: Apache-2.0
"""What the guides tell a reader to type works, in a folder of the reader's own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.cli.legacy import LEGACY
from tests.support import fake_hub
from tests.support.eval_runs import fake_endpoint
from tests.support.upstream_tree import script_model, write_upstream_tree

DOCS = PARENT_DIR / "docs"
ELSEWHERE = ("train-with-trl",)  # needs torch and some minutes: tests/e2e/test_train_demo.py
GUIDES = sorted(
    page
    for pattern in ("guides/*.md", "how-to/*.md", "migrating-from-nemo-gym.md", "faq.md")
    for page in DOCS.glob(pattern)
    if page.stem not in ELSEWHERE
)
FIRST_GUIDE = "getting-started"
BLOCK = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
EXPECTED = {
    "getting-started": [
        "12 scored of 12 requested",
        "3 scored of 3 requested",
        "5 scored of 5 requested",
        "3 passed",
        "8 scored of 8 requested",
        "8 scored of 8 requested rollouts, 2 tasks",
    ],
    "collect-rollouts": ["20 scored of 20 requested", "20 scored of 20 requested rollouts, 5 tasks"],
    "scale-out": ["40 scored of 40 requested"],
    "look-at-rollouts": ["20 scored of 20 requested", "Wrote report/index.html: 10 rollouts"],
    "export-rollouts": [
        "20 scored of 20 requested",
        "SmolLM2-135M-Instruct  20        20     0          0",
        "exported             20        20 clean",
        "trl: 20 records of 5 groups in exported/trl.jsonl",
        "tokens to train on: ",
    ],
    "run-environments-and-benchmarks": [
        "workplace_assistant    agent",
        "mmlu_pro        knowledge",
        "math_with_judge",
        "5 scored of 5 requested",
    ],
    "other-gyms": [
        "imported/reasoning_gym_chain_sum.jsonl: 5 rows",
        "5 scored of 5 requested",
        "Environments of reasoning_gym (106)",
        "2 scored of 2 requested",
        "1 scored of 1 requested",
    ],
    "write-an-environment": ["✓ Config is valid.", "4 passed", "reward: 1.0"],
    "write-a-model-server": ["responses_api_models/acme: 6 files to start from", "2 passed", "✓ Config is valid."],
    "call-servers": ["counter: 7"],
    "use-servers-from-other-systems": [
        "seed 0: reward 1.0",
        '{"status":"healthy"}',
        "tools: ['increment_counter', 'get_counter_value']",
        "reward: 1.0",
    ],
    "train-with-nemo-rl": ["row 0: reward 1.0, ", "row 4: reward 1.0, ", "tokens to train on"],
    "bring-your-own-agent": [
        "reward 1.0 after 3 calls",
        "main line: ['assistant', 'user', 'assistant']",
        "beside it: ['Write a title for a folder of notes.']",
        "printed: tidied notes.txt and ended with 0",
        "kept: ['session.log']",
        "@@ -1,2 +1,2 @@\n-ada\n-grace\n+Ada\n+Grace\n",
        "any    2         2      0",
        "exported             2         2 clean",
        "5 scored of 5 requested",
    ],
    "train-with-a-gateway": ["task1-sample1: 2 turns", "version 0", "4 sessions fetched"],
    "scale-out-ray": [],  # its commands need a cluster: tests/e2e/test_ray_placement.py
    "measure": [
        "bare POST",
        "of 1 figures stayed within their spread",
        "endpoint: requests in flight (allows 226 a second)",
        "hint: let the endpoint take more requests at once",
    ],
    "train-with-verl": [
        '{"solution": "\\\\boxed{yes}", "reward": 1.0}',
        '{"solution": "\\\\boxed{no}", "reward": 0.0}',
        "5 samples",
        "reward 1.0 for 11 tokens after",
    ],
    "prepare-data": [
        "collated/train.jsonl: 4 rows",
        "collated/validation.jsonl: 1 row;",
        '"agent_ref": {"type":"responses_api_agents","name":"capitals_simple_agent"}',
        "row 1: Extra inputs are not permitted (responses_create_params.top_k)",
        "collated/example.jsonl: 5 rows",
        "Materialized 2 rows to data/rendered.jsonl",
    ],
    "share-datasets": [
        "repository: my-org/Nemotron-RL-knowledge-capitals, to be created, private",
        "[Nemo-Gym] - Dataset upload successful",
        "data/splits/train.jsonl: 2 rows",
        "collated/train.jsonl: 2 rows",
    ],
    "migrating-from-nemo-gym": [
        "✓ Config is valid.",
        "1 passed",
        "✓ sessions           20 at once as one by one",
        "5 scored of 5 requested",
        "use `gym env status` instead",
        "3 servers found (3 healthy, 0 unhealthy)",
        "use `gym eval run --no-serve` instead",
        "10 scored of 10 requested",
        "+0 (5 tasks)",
        "0/0/5",
    ],
    "faq": ["✓ Config is valid."],
    "run-a-simple-agent": [
        "3 servers found (3 healthy, 0 unhealthy)",
        "The weather in San Francisco is cold.",
        "item: function_call\nitem: function_call_output\nitem: message",
        "openai_api_key: '****'",
        " passed",
    ],
    "contribute-a-server": [
        "data/test_weather/example.jsonl: 5 rows",
        "5/5 rollouts | ",
        "3 passed",
        "✓ recorded rollouts",
    ],
    "generate-training-data": ["20 scored of 20 requested", "sft: ", "dpo: "],
    "make-a-server-fast": ["64 scored of 64 requested", "64 of 64  +0 (1 tasks)"],
}

WITH_ENDPOINT = ("migrating-from-nemo-gym", "run-a-simple-agent", "contribute-a-server")
"""Pages whose readers have a model of their own in `env.yaml`."""
FAILING = ["3. When a row is bad"]
"""Headings above commands of which the guide says that they fail."""
IN_ANOTHER_TERMINAL = """
if [ "${{servers:-}}" ]; then kill $servers; wait $servers || true; fi  # a reader has stopped earlier ones with Ctrl-C
rm -f servers.log
{command} 2> servers.log &
servers=$!
trap 'kill $servers && wait' EXIT
until grep -qs "servers ready" servers.log; do kill -0 $servers; sleep 0.1; done
"""


def script_of(guide: Path, folder: Path) -> str:
    """The guide's commands; its titled blocks are written to files where they stand in the text."""
    steps, page = ["set -euo pipefail"], guide.read_text()
    for number, block in enumerate(BLOCK.finditer(page)):
        if block["title"]:
            source = folder / f"block{number}"
            source.write_text(block["text"])
            steps.append(f"mkdir -p $(dirname {block['title']}) && cp {source} {block['title']}")
        elif block["language"] == "bash" and block["text"].startswith(("gym env start", "ng_run")):
            steps.append(IN_ANOTHER_TERMINAL.format(command=block["text"].rstrip()))
        elif block["language"] == "bash":
            heading = page[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
            steps.append(f"! {block['text']}" if heading in FAILING else block["text"])
    return "\n".join(steps)


@pytest.fixture
def hub():
    """The Hugging Face Hub that the guides' commands reach: the collection of a reader is there, and nothing else."""
    with fake_hub.FakeHub() as running:
        running.add_collection("my-org/my-environments-68abc")
        yield running


@contextmanager
def prepare_folder(guide: Path, folder: Path) -> Iterator[str]:
    """Put into `folder` what a reader of the page has already; give what stands in the reader's `env.yaml`."""
    if guide.stem not in WITH_ENDPOINT:
        yield ""
        return
    with fake_endpoint() as endpoint:
        if guide.stem == "migrating-from-nemo-gym":
            write_upstream_tree(folder)
            endpoint.set(scripts=script_model())
        yield f"policy_base_url: {endpoint.url}/v1\npolicy_api_key: sk-hidden\npolicy_model_name: fake\n"


def guide_params() -> Iterator[Any]:
    """The first guide is followed in every run of the tests, the others where there is more time."""
    for guide in GUIDES:
        yield pytest.param(guide, id=guide.stem, marks=[] if guide.stem == FIRST_GUIDE else [pytest.mark.thorough])


@pytest.mark.slow
@pytest.mark.parametrize("guide", guide_params())
def test_a_guide_can_be_followed_from_top_to_bottom(guide, tmp_path, unused_tcp_port, hub):
    work = tmp_path / "work"
    work.mkdir()
    environment = {
        **os.environ,
        **fake_hub.environment(hub, tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with prepare_folder(guide, work) as own_settings:
        # Guides run side by side here, each with a head server; a reader has the usual port to himself.
        (work / "env.yaml").write_text(f"{own_settings}head_server: {{port: {unused_tcp_port}}}\n")
        done = subprocess.run(
            ["bash", "-c", script_of(guide, tmp_path)],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=550,
        )
    log = (work / "servers.log").read_text() if (work / "servers.log").exists() else ""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log}"
    for text in EXPECTED[guide.stem]:
        assert text in done.stdout + done.stderr


def test_no_page_shows_what_only_a_test_needs():
    for page in [PARENT_DIR / "README.md", *(PARENT_DIR / "docs").rglob("*.md")]:
        for scaffold in ("HEAD_PORT", "servers.log", "sleep ", "|| true", "kill %"):
            assert scaffold not in page.read_text(), f"{page.name} shows {scaffold!r}"


def test_the_migration_page_has_every_legacy_command_with_its_replacement():
    rows = re.findall(r"^\| `ng_(\w+)` \| `gym ([^`]+)`", (DOCS / "migrating-from-nemo-gym.md").read_text(), re.M)
    assert {name: tuple(words.split()) for name, words in rows} == LEGACY


def test_the_readme_opens_with_the_two_commands_and_how_long_they_take():
    first = next(BLOCK.finditer((PARENT_DIR / "README.md").read_text()))["text"]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    assert all("minute" in line for line in first.splitlines())


def test_links_between_pages_lead_somewhere():
    pages = [PARENT_DIR / "README.md", PARENT_DIR / "CONTRIBUTING.md", *(PARENT_DIR / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            if "reference/" not in target:  # made from code; the strict build of the site checks these
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_site_has_every_page():
    text = (PARENT_DIR / "mkdocs.yml").read_text()
    pages = {str(page.relative_to(PARENT_DIR / "docs")) for page in (PARENT_DIR / "docs").rglob("*.md")}
    listed = set(re.findall(r"[-:] (\S+\.md)$", text, re.M))
    assert {page for page in listed if not page.startswith("reference/")} == pages  # the reference is made from code


@pytest.mark.slow
def test_the_commands_of_the_readme_work(tmp_path, unused_tcp_port):
    """All but those of make, of the shell and of the viewer, after a short demo in place of the whole one."""
    blocks = [block["text"] for block in BLOCK.finditer((PARENT_DIR / "README.md").read_text()) if block[1] == "bash"]
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("gym ") and not line.startswith("gym view")]
    assert [line.split()[1:3] for line in commands] == [["eval", "profile"], ["eval", "run"]]
    with fake_endpoint() as endpoint:
        endpoint.set(answer="walked")
        policy = f"policy_base_url: {endpoint.url}/v1\npolicy_api_key: sk-hidden\npolicy_model_name: fake\n"
        (tmp_path / "env.yaml").write_text(f"{policy}head_server: {{port: {unused_tcp_port}}}\n")
        script = "\n".join(["set -e", "gym demo --limit 2 --model-type openai_model", *commands])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=550,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "8 scored of 8 requested" in done.stdout
    assert "5 scored of 5 requested" in done.stdout


def test_the_readme_is_short():
    assert len((PARENT_DIR / "README.md").read_text().splitlines()) <= 150


def test_pictures_are_small():
    pictures = list((PARENT_DIR / "docs" / "images").glob("*.png"))
    assert {"viewer.png", "viewer-rollout.png"} <= {picture.name for picture in pictures}
    assert [picture.name for picture in pictures if picture.stat().st_size > 150_000] == []
