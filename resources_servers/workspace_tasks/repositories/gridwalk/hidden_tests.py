# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from gridwalk.grid import Grid
from gridwalk.paths import count_cost, draw_path, find_path, list_regions


def test_rows_must_be_equally_long():
    assert error_of(Grid, "..\n...") == "ValueError"


def test_what_is_not_there_cannot_be_found():
    assert error_of(Grid("..").find, "S") == "LookupError"
    assert Grid("a.\n.a").find("a") == (0, 0)


def test_the_edges_are_walls():
    grid = Grid("..\n..")
    assert grid.neighbours((0, 0)) == [(0, 1), (1, 0)]
    assert grid.neighbours((1, 1)) == [(0, 1), (1, 0)]
    assert not grid.is_open((-1, 0))
    assert not grid.is_open((0, 2))


def test_neighbours_are_never_diagonal_and_come_in_reading_order():
    assert Grid("...\n...\n...").neighbours((1, 1)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_walls_are_not_entered():
    assert Grid(".#\n..").neighbours((0, 0)) == [(1, 0)]
    assert find_path("S#E") == []
    assert count_cost("S#E") is None


def test_a_detour_can_be_cheaper():
    assert count_cost("S9E\n...") == 4
    assert find_path("S9E\n...") == [(0, 0), (1, 0), (1, 1), (1, 2), (0, 2)]


def test_a_straight_way_can_be_cheaper():
    assert count_cost("S2E\n...") == 3


def test_cells_of_cost_zero_are_free():
    assert count_cost("S00E") == 1
    assert count_cost("S000E\n.....") == 1


def test_a_better_way_that_is_found_later_counts():
    text = "S91E\n1#1#\n111#"
    assert count_cost(text) == 7
    assert len(find_path(text)) == 8


def test_start_and_end_can_be_chosen():
    assert count_cost("A.B", "A", "B") == 2
    assert find_path("AB", "B", "B") == [(0, 1)]
    assert count_cost("AB", "B", "B") == 0


def test_regions_join_around_corners():
    assert list_regions("..#.\n.##.\n....") == [9]
    assert list_regions("#.#\n.#.\n#.#") == [1, 1, 1, 1]
    assert list_regions("##") == []


def test_the_way_is_drawn_without_its_ends():
    assert draw_path("S9E\n...") == "S9E\n***"
    assert draw_path("S#E") == "S#E"
