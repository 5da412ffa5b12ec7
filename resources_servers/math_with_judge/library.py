# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: math-verify on one answer.

The library is imported with the first call, not by the server, which never uses it itself. It may hang or use up its
memory on what a model wrote; to kill it then is left to the caller.
"""

import builtins
import gc
import logging
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

# Numbers are compared by decimals, except small ones, of which these say too little: those by leading digits.
ROUNDED_DECIMALS = 6
_LEADING_DIGITS = 3
_NUMERIC_PRECISION = 15
_MOST_DECIMALS = 1000
# What a bug of the parser raises; text that is no mathematics raises a plain Exception.
_BUGS = (AttributeError, NameError, ImportError)
_SHOWING_TIMEOUT_S = 2
_GOLDS_KEPT = 4096
_MATH_MARKS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"))

_USUAL_ANSWERS = (
    *(
        "2",
        "-0.5",
        "1,234",
        r"50\%",
        "x = 7",
        "3x",
        "(1, 2)",
        "[0, 1)",
        r"\{1, 2\}",
        r"x \le 5",
        r"12 \text{ cm}",
        "2^{10}",
    ),
    *(
        r"\frac{3}{4}",
        r"-\frac12",
        r"2\sqrt{3}+1",
        r"\frac{\sqrt{5}-1}{2}",
        "x^2-3x+2",
        "(x+1)(x-2)",
        r"\frac{x+1}{y-3}",
    ),
    *(
        r"e^{2x}",
        r"\pi r^2",
        r"\sin(x)+\cos 2x",
        r"\log_2 8",
        "n!",
        r"\binom{5}{2}",
        "3+4i",
        r"\infty",
        r"(-\infty, 3]",
    ),
    *(
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\sum_{k=1}^{n} k",
        r"\int_0^1 x dx",
        "a_n = 2n+1",
        r"60^\circ",
    ),
)


class LibraryVerdict(NamedTuple):
    """What the library makes of an answer."""

    is_equal: bool
    extracted_answer: str | None
    """The answer that it found; None if it found none."""


class LibraryCrashed(Exception):
    """A bug of the library kept it from reading an expected answer."""


class _Library(NamedTuple):
    parsed_gold: Callable[[str], tuple[list[Any], str | None]]
    """The gold as the library reads it, and the bug that it ran into, if any."""
    parsed_answer: Callable[[str], list[Any]]
    are_equal: Callable[[list[Any], list[Any]], bool]
    shown: Callable[[Any], str]
    too_late: type[BaseException]


def verdict_on(expected_answer: str, generated_answer: str) -> LibraryVerdict:
    """Compare the answer that `generated_answer` ends in with the expected one.

    LibraryCrashed: they are not the same text, and a bug of the library hides whether they are equal.
    """
    library = _library()
    gold, bug = library.parsed_gold(box_gold(expected_answer))
    answers = library.parsed_answer(generated_answer)
    is_equal = library.are_equal(gold, answers)
    if bug is not None and not is_equal:
        raise LibraryCrashed(f"math-verify cannot read the expected answer {expected_answer!r}: {bug}")
    return LibraryVerdict(is_equal, _shown(answers, library))


def verdicts_on(pairs: list[tuple[str, str]]) -> list[LibraryVerdict]:
    """Return the verdicts on several pairs of expected and generated answers."""
    return [verdict_on(*pair) for pair in pairs]


def box_gold(expected_answer: str) -> str:
    r"""Return the expected answer in a box, where the library looks for it; without `\(\)` or `$` around it."""
    text = expected_answer.strip()
    for start, end in _MATH_MARKS:
        inner = text[len(start) : -len(end)]
        if text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end) and end not in inner:
            return rf"\boxed{{{inner.strip()}}}"
    return rf"\boxed{{{text}}}"


def warm_up() -> None:
    """Import the library and fill its tables, for all processes that are forked from this one."""
    for answer in _USUAL_ANSWERS:
        verdict_on(answer, rf"So $y = 3$, and the answer is \boxed{{{answer}}}.")
    gc.collect()
    gc.freeze()  # what is here stays, so that no collection looks at it again or copies its pages


@lru_cache(maxsize=1)
def _library() -> _Library:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, parser, verify
    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it tells, with the text, of all it cannot read
    _share_sympy_names()
    gold_forms = (LatexExtractionConfig(),)
    answer_forms = (ExprExtractionConfig(), LatexExtractionConfig())
    bugs: list[str] = []
    read_latex = parser.latex2sympy

    def note_bugs(*args: Any, **options: Any) -> Any:
        try:
            return read_latex(*args, **options)
        except _BUGS as error:
            # `parse` takes it for text that is no mathematics, and compares letters.
            bugs.append(f"{type(error).__name__}: {error}")
            raise

    def parse_gold(text: str) -> tuple[list[Any], str | None]:
        bugs.clear()
        gold = parse(text, gold_forms)
        return gold, next(iter(bugs), None)

    def are_equal(gold: list[Any], answers: list[Any]) -> bool:
        if not verify(gold, answers, ROUNDED_DECIMALS, _NUMERIC_PRECISION):
            return False
        zeros = min(_MOST_DECIMALS, max(map(_count_zeros, (*gold, *answers)), default=0))
        if zeros <= ROUNDED_DECIMALS - _LEADING_DIGITS:
            return True
        return bool(verify(gold, answers, zeros + _LEADING_DIGITS, zeros + _NUMERIC_PRECISION))

    parser.latex2sympy = note_bugs
    return _Library(
        # The answers to one task come together, so its gold is read once.
        parsed_gold=lru_cache(maxsize=_GOLDS_KEPT)(parse_gold),
        parsed_answer=lambda text: parse(text, answer_forms),
        are_equal=are_equal,
        shown=timeout(_SHOWING_TIMEOUT_S)(str),
        too_late=TimeoutException,
    )


def _count_zeros(value: Any) -> int:
    """Return how many decimals the smallest number in `value` has before its leading digits, at most: 3 for 0.002."""
    import sympy

    if isinstance(value, sympy.MatrixBase):
        return max(map(_count_zeros, value.flat()), default=0)
    if not isinstance(value, sympy.Basic):
        return 0
    if isinstance(value, sympy.Expr) and value.is_number:
        size = abs(value.evalf(5))
        return int(sympy.ceiling(-sympy.log(size, 10).evalf(5))) if size.is_finite and size > 0 and size < 1 else 0
    return max(map(_count_zeros, value.args), default=0)


def _share_sympy_names() -> None:
    """Let sympy look its names up once.

    By default `parse_expr` runs `from sympy import *` for every number that it reads, which is a third of the time of a
    comparison. Given a copy of the same names, it gives the same results.
    """
    from sympy.parsing import sympy_parser

    names: dict[str, Any] = {}
    exec("from sympy import *", names)
    names |= {name: value for name, value in vars(builtins).items() if isinstance(value, types.BuiltinFunctionType)}
    names |= {"max": names["Max"], "min": names["Min"]}
    parse_expr = sympy_parser.parse_expr

    def with_shared_names(
        s: str,
        local_dict: Any = None,
        transformations: Any = sympy_parser.standard_transformations,
        global_dict: Any = None,
        evaluate: bool = True,
    ) -> Any:
        return parse_expr(
            s, local_dict, transformations, names.copy() if global_dict is None else global_dict, evaluate
        )

    sympy_parser.parse_expr = with_shared_names


def _shown(answers: list[Any], library: _Library) -> str | None:
    """Return the first answer that can be written down: huge ones cannot, or take forever."""
    for answer in answers:
        try:
            return answer if isinstance(answer, str) else library.shown(answer)
        except (library.too_late, ValueError, ArithmeticError, RecursionError, MemoryError):
            continue
    return None
