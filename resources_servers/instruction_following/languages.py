# SPDX-License-Identifier: Apache-2.0
"""Which language a text is in, told by langdetect, the detector of the reference, always in the same way.

langdetect draws random numbers; here they come from a fixed seed. It guesses wildly at a word or two, so a short text
is undecided.
"""

from functools import cache

from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
from langdetect.lang_detect_exception import LangDetectException

LEAST_LETTERS_BYTES = 20
"""Texts with fewer letters are undecided. As UTF-8, because a letter says more in scripts that have more of them."""
_ALIASES = {"zh": ("zh-cn", "zh-tw"), "nb": ("no",), "nn": ("no",)}


@cache
def _detectors() -> DetectorFactory:
    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.seed = 0
    return factory


def known_languages() -> frozenset[str]:
    """Return the codes that can be asked for."""
    return frozenset({*_detectors().get_lang_list(), *_ALIASES})


def detect_language(text: str) -> str | None:
    """Return the code of the language of `text`; None if it is undecided."""
    letters = "".join(filter(str.isalpha, text[: LEAST_LETTERS_BYTES * 50]))
    if len(letters.encode(errors="ignore")) < LEAST_LETTERS_BYTES:
        return None
    detector = _detectors().create()
    detector.append(text)
    try:
        found = str(detector.detect())
    except LangDetectException:  # it has no letters that the detector knows
        return None
    return None if found == detector.UNKNOWN_LANG else found


def is_in_language(text: str, code: str) -> bool:
    """Return whether `text` is in the language; a text that is undecided is not."""
    wanted = code.strip().lower()
    return detect_language(text) in _ALIASES.get(wanted, (wanted,))
