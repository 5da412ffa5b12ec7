# SPDX-License-Identifier: Apache-2.0
"""Words and paragraphs of a text."""


def split_paragraphs(text: str) -> list[list[str]]:
    """Return the words of each paragraph; paragraphs are separated by lines without words."""
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        words = line.split()
        if words:
            paragraphs[-1].extend(words)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [words for words in paragraphs if words]


def split_long(word: str, width: int) -> list[str]:
    """Return a word in pieces of at most `width` characters."""
    return [word[start : start + width] for start in range(0, len(word), width)]
