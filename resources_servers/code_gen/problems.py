# SPDX-License-Identifier: Apache-2.0
"""The problems that rows are made of: kinds of programming tasks with numbers to choose, and programs that are right.

Written for this environment, in three levels of difficulty. Whether a problem is hard for a model was not measured.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

Draw = random.Random
TESTS = 6


@dataclass(frozen=True)
class Problem:
    """A task in words, a program that solves it, and what to try the program with."""

    statement: str
    solution: str
    inputs: list[str]
    fn_name: str | None = None


def sum_of_multiples(draw: Draw) -> Problem:
    a, b = draw.sample(range(3, 12), 2)
    return Problem(
        f"Read a whole number n. Print the sum of all whole numbers from 1 to n that are divisible by {a} or by {b}.",
        f"""
        n = int(input())
        print(sum(k for k in range(1, n + 1) if k % {a} == 0 or k % {b} == 0))
        """,
        [str(draw.randint(1, 3000)) for _ in range(TESTS - 1)] + ["1"],
    )


def words_by_letter(draw: Draw) -> Problem:
    letter = draw.choice("abcdest")
    words = ["apple", "Bread", "cedar", "Delta", "ember", "salt", "Tree", "stone", "echo", "Bottle", "arch", "desk"]
    return Problem(
        f"Read one line of words that are separated by spaces. Print how many of them begin with the letter "
        f"'{letter}', in upper or lower case.",
        f"""
        print(sum(word[0].lower() == "{letter}" for word in input().split()))
        """,
        [" ".join(draw.choices(words, k=draw.randint(1, 30))) for _ in range(TESTS)],
    )


def running_remainders(draw: Draw) -> Problem:
    modulus = draw.randint(5, 40)
    lists = [[draw.randint(-50, 50) for _ in range(draw.randint(1, 20))] for _ in range(TESTS)]
    return Problem(
        "The first line holds a whole number n, the second one n whole numbers. Print n numbers, separated by spaces: "
        f"the sum of the first, of the first two, and so on, each taken modulo {modulus} (so from 0 to {modulus - 1}).",
        f"""
        input()
        total, shown = 0, []
        for number in map(int, input().split()):
            total = (total + number) % {modulus}
            shown.append(total)
        print(*shown)
        """,
        [f"{len(numbers)}\n{' '.join(map(str, numbers))}" for numbers in lists],
    )


def clamp(draw: Draw) -> Problem:
    tests = [([draw.randint(-99, 99) for _ in range(draw.randint(0, 9))], draw.randint(-50, 0), draw.randint(1, 50))
             for _ in range(TESTS)]  # fmt: skip
    return Problem(
        "Write a function `clamp(numbers, low, high)`. It returns a list with every number of the list `numbers` in "
        "order, where those below `low` are replaced by `low` and those above `high` by `high`.",
        """
        def clamp(numbers, low, high):
            return [min(max(number, low), high) for number in numbers]
        """,
        [_arguments(*test) for test in tests],
        "clamp",
    )


def rotate(draw: Draw) -> Problem:
    tests = [(draw.choices("uvwxyz", k=draw.randint(0, 8)), draw.randint(0, 20)) for _ in range(TESTS)]
    side, sign = draw.choice([("left", ""), ("right", "-")])
    return Problem(
        f"Write a function `rotate(items, steps)`. It returns the list `items` rotated to the {side} by "
        "`steps` places, "
        "which may be more than there are items. An empty list stays as it is.",
        f"""
        def rotate(items, steps):
            cut = {sign}steps % len(items) if items else 0
            return items[cut:] + items[:cut]
        """,
        [_arguments(*test) for test in tests],
        "rotate",
    )


def brackets(draw: Draw) -> Problem:
    lines = ["".join(draw.choices("()[]{}", k=2 * draw.randint(1, 5))) for _ in range(4 * TESTS)]
    lines += ["([]{})", "(([[]]))", "([)]", "{}{}[]"] * TESTS
    draw.shuffle(lines)
    yes, no = draw.choice([("yes", "no"), ("balanced", "broken"), ("ok", "bad")])
    return Problem(
        "The first line holds a whole number n; n lines of brackets follow, of the kinds (), [] and {}. For "
        "each of them "
        f"print `{yes}` if every bracket is closed by one of its kind, in the right order, else `{no}`.",
        f"""
        pairs = {{")": "(", "]": "[", "}}": "{{"}}
        for _ in range(int(input())):
            opened = []
            good = True
            for symbol in input().strip():
                if symbol in "([{{":
                    opened.append(symbol)
                elif not opened or opened.pop() != pairs[symbol]:
                    good = False
                    break
            print("{yes}" if good and not opened else "{no}")
        """,
        [f"8\n{chr(10).join(lines[8 * n : 8 * n + 8])}" for n in range(TESTS)],
    )


def longest_run(draw: Draw) -> Problem:
    letters = draw.choice(["ab", "xyz", "01"])
    return Problem(
        "Write a function `longest_run(text)`. It returns how many times in a row a character occurs in the string "
        "`text` at most; 0 for an empty string.",
        """
        def longest_run(text):
            best = count = 0
            before = None
            for character in text:
                count = count + 1 if character == before else 1
                before = character
                best = max(best, count)
            return best
        """,
        [_arguments("".join(draw.choices(letters, k=length))) for length in (0, 1, 5, 20, 60, 200)],
        "longest_run",
    )


def merge_intervals(draw: Draw) -> Problem:
    gap = draw.randint(0, 3)
    tests = []
    for _ in range(TESTS):
        starts = [draw.randint(0, 60) for _ in range(draw.randint(1, 10))]
        tests.append([f"{start} {start + draw.randint(0, 9)}" for start in starts])
    return Problem(
        "The first line holds a whole number n; n lines follow, each with the first and the last number of a "
        "range. Join "
        f"ranges as long as there are two of which one begins at most {gap} after the other ends. Print what "
        "is left, one "
        "range a line as `first last`, sorted by the first number.",
        f"""
        ranges = sorted(tuple(map(int, input().split())) for _ in range(int(input())))
        joined = [list(ranges[0])]
        for first, last in ranges[1:]:
            if first <= joined[-1][1] + {gap}:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        for first, last in joined:
            print(first, last)
        """,
        [f"{len(lines)}\n{chr(10).join(lines)}" for lines in tests],
    )


def top_words(draw: Draw) -> Problem:
    pool = ["oak", "elm", "ash", "fir", "yew", "bay"]
    tests = [(draw.choices(pool, k=draw.randint(1, 25)), draw.randint(1, 4)) for _ in range(TESTS)]
    return Problem(
        "Write a function `top_words(words, k)`. It returns a list of the `k` different words that occur most often in "
        "the list `words`, most frequent first; words that occur equally often are in alphabetical order. If there are "
        "fewer than `k` different words, it returns all of them.",
        """
        from collections import Counter

        def top_words(words, k):
            return sorted(Counter(words), key=lambda word: (-words.count(word), word))[:k]
        """,
        [_arguments(*test) for test in tests],
        "top_words",
    )


def mean_and_spread(draw: Draw) -> Problem:
    tests = [[round(draw.uniform(-9, 9), 2) for _ in range(draw.randint(1, 12))] for _ in range(TESTS)]
    return Problem(
        "Write a function `mean_and_spread(values)`. It returns a list of two numbers: the mean of the "
        "numbers in the list "
        "`values`, which is not empty, and their population standard deviation.",
        # Python 3.12 adds floats up by other means than 3.11; `fsum` gives the same sums in both.
        """
        from math import fsum

        def mean_and_spread(values):
            mean = fsum(values) / len(values)
            return [mean, (fsum((value - mean) ** 2 for value in values) / len(values)) ** 0.5]
        """,
        [_arguments(test) for test in tests],
        "mean_and_spread",
    )


def grid_paths(draw: Draw) -> Problem:
    modulus = draw.choice([997, 10_007, 1_000_003])
    grids = []
    for _ in range(TESTS):
        height = draw.randint(2, 12)
        width = draw.randint(2, 12)
        cells = [["#" if draw.random() < 0.15 else "." for _ in range(width)] for _ in range(height)]
        cells[0][0] = cells[-1][-1] = "."
        grids.append(f"{height} {width}\n" + "\n".join("".join(row) for row in cells))
    return Problem(
        "The first line holds the height and the width of a map; its rows follow, in which `.` is free and "
        "`#` is a wall. "
        "Count the ways from the top left to the bottom right corner, both of which are free, that take only "
        "steps to the "
        f"right and down and go through no wall. Print that number modulo {modulus}.",
        f"""
        height, width = map(int, input().split())
        ways = [0] * width
        ways[0] = 1
        for _ in range(height):
            row = input()
            for x in range(width):
                if row[x] == "#":
                    ways[x] = 0
                elif x > 0:
                    ways[x] = (ways[x] + ways[x - 1]) % {modulus}
        print(ways[-1] % {modulus})
        """,
        grids,
    )


def cheapest_way(draw: Draw) -> Problem:
    tests = []
    toll = draw.randint(0, 5)
    for _ in range(TESTS):
        towns = draw.randint(2, 15)
        roads = [(*draw.sample(range(1, towns + 1), 2), draw.randint(1, 30)) for _ in range(draw.randint(1, 3 * towns))]
        tests.append(f"{towns} {len(roads)}\n" + "\n".join(" ".join(map(str, road)) for road in roads))
    return Problem(
        "The first line holds the number of towns n and of roads m; m lines follow, each with two towns "
        "(numbered from 1) "
        "and the price of the road between them, which can be used both ways. Every road that is used also "
        "costs a toll of "
        f"{toll}. Print the lowest cost of a journey from town 1 to town n, or -1 if there is none.",
        f"""
        import heapq

        n, m = map(int, input().split())
        roads = {{town: [] for town in range(1, n + 1)}}
        for _ in range(m):
            a, b, price = map(int, input().split())
            roads[a].append((b, price + {toll}))
            roads[b].append((a, price + {toll}))
        known, queue = {{}}, [(0, 1)]
        while queue:
            cost, town = heapq.heappop(queue)
            if town not in known:
                known[town] = cost
                for other, price in roads[town]:
                    heapq.heappush(queue, (cost + price, other))
        print(known.get(n, -1))
        """,
        tests,
    )


def fewest_coins(draw: Draw) -> Problem:
    tests = [(sorted(draw.sample(range(2, 30), 3)), draw.randint(0, 200)) for _ in range(TESTS)]
    return Problem(
        "Write a function `fewest_coins(coins, amount)`. There are as many coins as one likes of each value "
        "in the list "
        "`coins`. It returns the smallest number of coins whose values sum up to exactly `amount`, or -1 if "
        "there is none.",
        """
        def fewest_coins(coins, amount):
            fewest = [0] + [None] * amount
            for total in range(1, amount + 1):
                known = [fewest[total - coin] for coin in coins if coin <= total and fewest[total - coin] is not None]
                fewest[total] = 1 + min(known) if known else None
            return -1 if fewest[amount] is None else fewest[amount]
        """,
        [_arguments(*test) for test in tests],
        "fewest_coins",
    )


def climbing_list(draw: Draw) -> Problem:
    step = draw.randint(1, 4)
    lists = [[draw.randint(0, 80) for _ in range(length)] for length in (1, 2, 8, 20, 60, 150)]
    return Problem(
        "The first line holds a whole number n, the second one n whole numbers. Choose some of them, in the "
        "order in which "
        f"they stand, so that each is greater by at least {step} than the one chosen before. Print how many "
        "can be chosen at "
        "most.",
        f"""
        input()
        numbers = list(map(int, input().split()))
        longest = []
        for i, number in enumerate(numbers):
            longest.append(1 + max((longest[j] for j in range(i) if number - numbers[j] >= {step}), default=0))
        print(max(longest))
        """,
        [f"{len(numbers)}\n{' '.join(map(str, numbers))}" for numbers in lists],
    )


KINDS: dict[str, tuple[Callable[[Draw], Problem], ...]] = {
    "easy": (sum_of_multiples, clamp, words_by_letter, rotate, running_remainders),
    "medium": (brackets, longest_run, merge_intervals, top_words, mean_and_spread),
    "hard": (grid_paths, fewest_coins, cheapest_way, climbing_list),
}


def source_of(problem: Problem) -> str:
    """Return the program that solves it."""
    return dedent(problem.solution).strip()


def _arguments(*values: object) -> str:
    return "\n".join(json.dumps(value) for value in values)
