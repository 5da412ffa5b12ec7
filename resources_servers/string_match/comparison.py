# SPDX-License-Identifier: Apache-2.0
r"""Compare an answer with the expected one, forgiving how it is written.

The rules are tried in order and the first that holds decides: the same text, the same number, the same text without
LaTeX, without the words of a list, with the states of the USA abbreviated, and at last a number within one percent,
which is worth 0.98.
"""

import re
import unicodedata

ALMOST = 0.98
"""The reward of a number that is nearly the expected one."""

_WRAPPERS = re.compile(
    r"\\(?:boxed|text|textbf|textit|texttt|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|emph|url)\{|[{}]"
)
_MATH_DELIMITERS = re.compile(r"\\[()\[\]]|\$")
# Letters inside a word are no unit: "Rome" is not "Roe".
_UNIT = re.compile(r"\^\{?\\circ\}?|\\circ|°|(?<![a-z])(?:cm[²³]?|mm|km|m[²³]?|kg)(?![a-z])")
_CURRENCY_AND_COMMAS = str.maketrans("", "", "$£€%,")
_LIST_WORDS = re.compile("[,;]|and|or")

# Names of several words come first, so that "west virginia" is not read as "virginia".
_STATES = {
    "district of columbia": "DC",
    "new hampshire": "NH",
    "new jersey": "NJ",
    "new mexico": "NM",
    "new york": "NY",
    "north carolina": "NC",
    "north dakota": "ND",
    "rhode island": "RI",
    "south carolina": "SC",
    "south dakota": "SD",
    "west virginia": "WV",
    "alabama": "AL",
    "alaska": "AK",
    "arizona": "AZ",
    "arkansas": "AR",
    "california": "CA",
    "colorado": "CO",
    "connecticut": "CT",
    "delaware": "DE",
    "florida": "FL",
    "georgia": "GA",
    "hawaii": "HI",
    "idaho": "ID",
    "illinois": "IL",
    "indiana": "IN",
    "iowa": "IA",
    "kansas": "KS",
    "kentucky": "KY",
    "louisiana": "LA",
    "maine": "ME",
    "maryland": "MD",
    "massachusetts": "MA",
    "michigan": "MI",
    "minnesota": "MN",
    "mississippi": "MS",
    "missouri": "MO",
    "montana": "MT",
    "nebraska": "NE",
    "nevada": "NV",
    "ohio": "OH",
    "oklahoma": "OK",
    "oregon": "OR",
    "pennsylvania": "PA",
    "tennessee": "TN",
    "texas": "TX",
    "utah": "UT",
    "vermont": "VT",
    "virginia": "VA",
    "washington": "WA",
    "wisconsin": "WI",
    "wyoming": "WY",
}


def score_answer(answer: str, expected: str, *, case_sensitive: bool) -> float:
    """Return 1 if `answer` says the same as `expected`, 0.98 for a number within one percent, else 0."""
    if not answer.strip() or not expected.strip():
        return 0.0
    if case_sensitive:
        return float(answer.strip() == expected.strip())
    said = _fold(answer)
    wanted = _fold(expected)
    if said == wanted:
        return 1.0
    for rewrite in (_write_float, _write_digits, _remove_latex, _join_list, _abbreviate_states):
        if rewrite(said) == rewrite(wanted):
            return 1.0
    if _differ_in_unit(said, wanted):
        return 0.0
    if _is_nearly(said, wanted):
        return ALMOST
    said = _remove_units(_write_math_as_latex(_remove_latex(said)))
    wanted = _remove_units(_write_math_as_latex(_remove_latex(wanted)))
    if said == wanted:
        return 1.0
    return ALMOST if _is_nearly(said, wanted) else 0.0


def _fold(text: str) -> str:
    unified = unicodedata.normalize("NFKC", text).strip()
    if len(unified) >= 2 and unified[0] == unified[-1] and unified[0] in "\"'":
        unified = unified[1:-1]
    lower = unified.lower()
    return lower.rstrip(".!?") or lower


def _write_float(text: str) -> str:
    number = _parse_float(text.replace("\\%", "").replace("\\$", "").replace("$", ""))
    return text if number is None else str(number)


def _write_digits(text: str) -> str:
    return re.sub(r"(?<!\d)(\d++),(\d++)", r"\1\2", text).replace("\\%", "%")


def _remove_latex(text: str) -> str:
    """Return `text` without commands that only change its look, without math delimiters and extra spaces."""
    kept: list[str] = []
    is_wrapper: list[bool] = []  # for each open brace
    end = 0
    for token in _WRAPPERS.finditer(text):
        kept.append(text[end : token.start()])
        end = token.end()
        if token[0] == "}":
            drops = bool(is_wrapper) and is_wrapper.pop()
        else:
            drops = token[0] != "{"
            is_wrapper.append(drops)
        if not drops:
            kept.append(token[0])
    kept.append(text[end:])
    return " ".join(_MATH_DELIMITERS.sub("", "".join(kept)).split())


def _join_list(text: str) -> str:
    joined = _LIST_WORDS.sub(" ", text)
    # So much that it can't have been separators: the letters "and" and "or" occur inside words too.
    if len(joined) < 0.9 * len(text):
        return text
    return " ".join(joined.split())


def _abbreviate_states(text: str) -> str:
    for name, code in _STATES.items():
        text = text.replace(name, code)
    return _join_list(text).lower()


def _differ_in_unit(said: str, wanted: str) -> bool:
    """Return whether both name units and not the same ones: 10 km are not 10 kg."""
    units = [["°" if "circ" in unit else unit for unit in _UNIT.findall(text)] for text in (said, wanted)]
    return all(units) and units[0] != units[1]


def _is_nearly(said: str, wanted: str) -> bool:
    number = _parse_amount(said)
    target = _parse_amount(wanted)
    if number is None or target is None:
        return False
    closeness = 1 - abs(number - target) / max(abs(target), 1e-9)
    return closeness > 0 and closeness**2 > 0.98


def _parse_amount(text: str) -> float | None:
    plain = _remove_units(_write_math_as_latex(text.translate(_CURRENCY_AND_COMMAS)))
    return _parse_float(plain.replace("\\%", "").replace("\\$", ""))


def _write_math_as_latex(text: str) -> str:
    # Superscripts and small signs need no rule: NFKC has unified them already.
    return text.replace("°", "^\\circ").replace("√", "\\sqrt").replace("π", "\\pi")


def _remove_units(text: str) -> str:
    return _UNIT.sub("", text).strip()


def _parse_float(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None
