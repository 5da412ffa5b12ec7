# SPDX-License-Identifier: Apache-2.0
from xml.etree import ElementTree

from hypothesis import given
from hypothesis.strategies import floats, lists

from nemo_gym._bench.picture import draw_picture
from nemo_gym._bench.report import Point, Row

SVG = "{http://www.w3.org/2000/svg}"


def rows(*values: float, line: str = "p50", chart: str = "latency, ms") -> list[Row]:
    return [Row("a", value, "ms", point=Point(chart, line, 32 * 4**n, "in flight")) for n, value in enumerate(values)]


def draw(drawn: list[Row]) -> ElementTree.Element:
    picture = draw_picture(drawn, "measured <today>")
    assert picture is not None
    return ElementTree.fromstring(picture)


def test_figures_without_a_curve_make_no_picture():
    assert draw_picture([Row("a", 1, "ms")], "") is None


def test_a_line_goes_through_all_points_of_its_curve_from_left_to_right():
    [line] = draw(rows(1, 2, 4)).iter(f"{SVG}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert points == sorted(points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)  # SVG counts from the top


def test_every_chart_has_its_title_and_every_line_its_name():
    picture = draw([*rows(1, 2), *rows(3, 4, line="p99"), *rows(9, 9, chart="memory, MB")])
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"latency, ms", "memory, MB", "p50", "p99", "in flight", "measured <today>"} <= set(texts)


FIGURES = floats(min_value=-1e3, max_value=1e6, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-12)


@given(lists(FIGURES, min_size=1, max_size=6))
def test_any_figures_can_be_drawn_inside_the_picture(values):
    picture = draw(rows(*values))
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for dot in picture.iter(f"{SVG}circle"):
        assert 0 <= float(dot.get("cx", -1)) <= width
        assert 0 <= float(dot.get("cy", -1)) <= height
