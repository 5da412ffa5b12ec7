# SPDX-License-Identifier: Apache-2.0
"""The generated files of the viewer's benchmark are like those of a run."""

from nemo_gym._bench.rollout_files import write_failures, write_rollouts
from nemo_gym._viewer.files.file_overview import make_overview
from nemo_gym._viewer.files.run_companions import open_failures


def test_a_generated_file_is_a_run_of_about_3_kb_a_row(tmp_path, opened):
    path = tmp_path / "r.jsonl"
    rows = write_rollouts(path, 300_000)
    write_failures(tmp_path / "r_failures.jsonl", 6)
    index = opened(path)
    assert index.n_rows == rows
    assert 2500 < path.stat().st_size / rows < 4000
    with open_failures(index) as failures:
        failures.wait(300)
        report = make_overview(index, failures)
    assert (report.n_problems, sum(one.count for one in report.failures)) == (0, 6)
    assert report.n_tasks == -(-rows // 8)
    assert len(report.agents) == 3
    assert 0 < report.agents[0].mean_reward < 1


def test_the_same_seed_gives_the_same_file(tmp_path):
    write_rollouts(tmp_path / "a.jsonl", 20_000, seed=3)
    write_rollouts(tmp_path / "b.jsonl", 20_000, seed=3)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
