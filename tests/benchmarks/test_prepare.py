# SPDX-License-Identifier: Apache-2.0
"""The prepare scripts, given files of the shape of the Hub's by the real client: which rows they write."""

import itertools
import json
import re

import pytest

from benchmarks._loading import UnexpectedData, integer_text
from nemo_gym.hf_utils import HubError, load_hub_rows
from nemo_gym.prompt import fill_prompt, load_prompt_config
from tests.benchmarks.samples import GPQA, GSM8K, IFEVAL, MBPP, MMLU_PRO, SAMPLES, encoded
from tests.support.fake_hub import FakeHub
from tests.support.hub_routes import refused
from tests.support.hub_store import READER


@pytest.mark.parametrize("name", SAMPLES)
def test_every_row_of_the_file_becomes_one_without_an_input(prepare, name):
    rows = prepare(name)
    assert len(rows) == len(SAMPLES[name].rows)
    assert not any("responses_create_params" in row for row in rows)
    assert all(isinstance(row.get("expected_answer", ""), str) for row in rows)


def test_gsm8k_answers_are_text_without_separators(prepare):
    rows = prepare("gsm8k")
    assert [row["expected_answer"] for row in rows] == ["12", "2120", "-5"]
    assert rows[0] == {"id": "test-0", "question": GSM8K.rows[0]["question"], "expected_answer": "12"}


def test_gsm8k_can_be_prepared_from_another_split(prepare):
    rows = prepare("gsm8k", {"main/train-00000-of-00001.parquet": encoded("x.parquet", GSM8K.rows[:1])}, split="train")
    assert [row["id"] for row in rows] == ["train-0"]


def test_files_may_be_cut_into_more_pieces(prepare):
    pieces = {
        f"main/test-0000{number}-of-00003.parquet": encoded("x.parquet", [row]) for number, row in enumerate(GSM8K.rows)
    }
    assert [row["expected_answer"] for row in prepare("gsm8k", pieces)] == ["12", "2120", "-5"]


@pytest.mark.parametrize(("name", "answers"), [("aime24", ["25", "4"]), ("aime25", ["70", "336"])])
def test_aime_answers_are_plain_whole_numbers(prepare, name, answers):
    assert [row["expected_answer"] for row in prepare(name)] == answers


@pytest.mark.parametrize(
    ("answer", "text"),
    [("025", "25"), (7, "7"), ("1,000", "1000"), ("$90^{\\circ}$", "90"), (" 3.0", "3"), ("000", "0")],
)
def test_a_whole_number_is_read_however_it_is_written(answer, text):
    assert integer_text(answer) == text


@pytest.mark.parametrize("answer", ["", "one", "1/2", "3.5", "1 2"])
def test_what_is_no_whole_number_is_refused(answer):
    with pytest.raises(UnexpectedData, match="not a whole number"):
        integer_text(answer)


def test_math_500_keeps_subject_and_level(prepare):
    first = prepare("math-500")[0]
    assert first == {
        "id": "test/prealgebra/1.json",
        "question": "Write $0.75$ as a fraction.",
        "expected_answer": "\\frac{3}{4}",
        "subject": "Prealgebra",
        "level": 1,
    }


def test_gpqa_options_are_mixed_the_same_way_each_time(prepare):
    rows = prepare("gpqa")
    assert rows == prepare("gpqa")
    for row, source in zip(rows, GPQA.rows, strict=True):
        options = {letter: text for option in row["options"] for letter, text in option.items()}
        assert options[row["expected_answer"]] == source["Correct Answer"].strip()
        wrong = [source[f"Incorrect Answer {number}"].strip() for number in (1, 2, 3)]
        assert sorted(options.values()) == sorted([*wrong, source["Correct Answer"].strip()])
    letters = {prepare("gpqa", seed=seed)[0]["expected_answer"] for seed in range(12)}
    assert len(letters) > 1


def test_the_subset_of_gpqa_can_be_chosen(prepare):
    files = {"gpqa_main.csv": encoded("x.csv", GPQA.rows[:1])}
    assert len(prepare("gpqa", files, subset="main")) == 1
    with pytest.raises(ValueError, match="'no' is none of diamond, main, extended"):
        prepare("gpqa", subset="no")


class GatedHub(FakeHub):
    """All may see which files there are, but only those with a token read them."""

    async def _resolve(self, request):
        if self._token(request) is None:
            return refused(401, "Access to this dataset is restricted", "GatedRepo")
        return await super()._resolve(request)


@pytest.fixture
def gated(monkeypatch, hub):
    from huggingface_hub import constants

    with GatedHub() as running:
        running.add_dataset(GPQA.repo_id, GPQA.files())
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(hub.url, running.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def test_a_gated_data_set_says_how_access_is_had(prepare, gated):
    with pytest.raises(HubError) as caught:
        prepare("gpqa")
    said = str(caught.value)
    assert "access to it must be granted first" in said
    assert "https://huggingface.co/datasets/Idavidrein/gpqa" in said
    assert "HF_TOKEN" in said


def test_a_gated_data_set_is_read_with_a_token(prepare, gated, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", READER)
    assert len(prepare("gpqa")) == len(GPQA.rows)


def test_mmlu_pro_leaves_out_options_that_are_none(prepare):
    ten, few = prepare("mmlu_pro")
    assert [next(iter(option)) for option in ten["options"]] == list("ABCDEFGHIJ")
    assert few["options"] == [{"A": "iron"}, {"B": "argon"}]
    assert few["listed_options"] == "A: iron\nB: argon"
    assert few["metadata"] == {"category": "chemistry"}


def test_a_category_of_mmlu_pro_can_be_chosen(prepare):
    assert [row["uuid"] for row in prepare("mmlu_pro", category="math")] == ["70"]
    with pytest.raises(ValueError, match="'alchemy' is none of chemistry, math"):
        prepare("mmlu_pro", category="alchemy")


def test_an_answer_that_contradicts_its_index_is_refused(prepare):
    files = {MMLU_PRO.path: encoded(MMLU_PRO.path, [{**MMLU_PRO.rows[0], "answer": "A"}])}
    with pytest.raises(UnexpectedData, match="question 70"):
        prepare("mmlu_pro", files)


def test_ifeval_drops_arguments_that_are_null(prepare):
    rows = prepare("ifeval", grading_mode="fraction")
    assert rows[0]["verifier_metadata"]["kwargs"] == [{}, {}]
    assert rows[1]["verifier_metadata"]["kwargs"] == IFEVAL.rows[1]["kwargs"]
    assert (rows[0]["id"], rows[0]["verifier_metadata"]["grading_mode"]) == (1000, "fraction")


def test_mbpp_can_be_prepared_as_its_authors_edited_it(prepare):
    row = {
        "source_file": "x",
        "task_id": 2,
        "prompt": "Halve.",
        "code": "…",
        "test_imports": ["import math"],
        "test_list": ["assert half(math.inf) == math.inf"],
    }
    files = {"sanitized/test-00000-of-00001.parquet": encoded("x.parquet", [row])}
    (made,) = prepare("mbpp", files, config="sanitized")
    assert made["task"] == "Halve."
    assert made["verifier_metadata"]["unit_tests"]["harness"].startswith("import math\n")


def test_mbpp_has_one_unit_test_for_each_assertion(prepare):
    for made, source in zip(prepare("mbpp"), MBPP.rows, strict=True):
        assert len(made["verifier_metadata"]["unit_tests"]["inputs"]) == len(source["test_list"])
        assert "\r" not in json.dumps(made)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_prompt_of_a_benchmark_shows_the_task(prepare, root, name):
    config = (root / "benchmarks" / name / "config.yaml").read_text()
    paths = re.findall(r"prompt_config: ([^\s$]+)", config)
    assert paths
    for path, row in itertools.product(paths, prepare(name)):
        (message,) = fill_prompt(load_prompt_config(path), row)
        task = row.get("question") or row.get("prompt") or row["task"]
        assert task in message["content"]
        assert all(text in message["content"] for option in row.get("options", ()) for text in option.values())


def test_other_columns_than_expected_are_refused_by_name(prepare, root):
    files = {GSM8K.path: encoded(GSM8K.path, [{"question": "?", "reply": "1"}])}
    with pytest.raises(UnexpectedData, match="no column 'answer'") as caught:
        prepare("gsm8k", files)
    assert "its columns: question, reply" in str(caught.value)
    assert not list((root / "benchmarks" / "gsm8k" / "data").glob("*.jsonl"))


def test_a_file_that_moved_is_named_with_what_is_there(prepare):
    with pytest.raises(HubError, match=r"no data file 'test\.jsonl'") as caught:
        prepare("math-500", {"data/test.jsonl": b"{}\n"})
    assert "'data/test.jsonl'" in str(caught.value)


def test_an_older_revision_can_be_read(hub):
    old = hub.add_dataset("math-ai/aime25", SAMPLES["aime25"].files()).refs["main"]
    hub.datasets["math-ai/aime25"].commit("main", {"renamed.jsonl": b"{}\n"})
    assert len(load_hub_rows("math-ai/aime25", "test.jsonl", revision=old)) == 2


def test_what_was_prepared_before_stays_if_preparing_again_fails(prepare, root):
    prepare("aime25")
    written = root / "benchmarks" / "aime25" / "data" / "aime25_benchmark.jsonl"
    before = written.read_text()
    with pytest.raises(UnexpectedData):
        prepare("aime25", {"test.jsonl": b'{"id": "0", "problem": "?", "answer": "pi"}\n'})
    assert written.read_text() == before
    assert [path.name for path in written.parent.glob("*.partial")] == []
