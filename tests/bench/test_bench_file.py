# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._bench import bench_file
from nemo_gym._bench.bench_file import BenchFileError, describe_run
from nemo_gym._bench.parts import PartResult
from nemo_gym._bench.report import Row

RESULTS = [PartResult("cli", (Row("gym --help", 0.4, "x the imports", 1.2),), 3.5), PartResult("viewer", left_out="no")]


def test_a_run_is_the_same_after_it_was_written_and_read(tmp_path):
    run = describe_run(RESULTS, repeat=5)
    bench_file.write(tmp_path / "bench.json", run)
    assert bench_file.read(tmp_path / "bench.json") == run


def test_a_run_says_where_when_and_with_what_it_was_measured():
    run = describe_run(RESULTS, repeat=5)
    assert run.machine["cores"] >= 1
    assert run.versions.keys() >= {"nemo_gym", "python", "orjson"}
    assert (run.date[:2], run.repeat) == ("20", 5)
    assert run.parts["viewer"] == {"wall_s": 0.0, "left_out": "no", "failure": ""}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 2, "rows": [{}]}', '{"schema": 2, "rows": 3}'])
def test_what_is_no_result_is_refused_with_a_hint(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(BenchFileError, match=r"other.json' is no result of `gym bench`\.\nit says: .*\nhint: "):
        bench_file.read(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BenchFileError, match=r"there is no file .*none.json'\.\nlooked in: .*\nhint: "):
        bench_file.read(tmp_path / "none.json")


def test_another_schema_is_refused(tmp_path):
    path = tmp_path / "old.json"
    path.write_text('{"schema": 1, "rows": []}')
    with pytest.raises(BenchFileError, match="has schema 1, and this version reads 2"):
        bench_file.read(path)
