# SPDX-License-Identifier: Apache-2.0
"""Lines of a given width."""

from typeset.words import split_long, split_paragraphs


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` characters, with an empty line between paragraphs."""
    if width < 1:
        raise ValueError(f"lines of width {width} hold nothing")
    lines: list[str] = []
    for words in split_paragraphs(text):
        if lines:
            lines.append("")
        lines.extend(fill(words, width))
    return lines


def fill(words: list[str], width: int) -> list[str]:
    """Return words in as few lines as there can be; a word that is too long is cut."""
    lines, line = [], ""
    for piece in (piece for word in words for piece in split_long(word, width)):
        if not line:
            line = piece
        elif len(line) + 1 + len(piece) <= width:
            line += f" {piece}"
        else:
            lines.append(line)
            line = piece
    return [*lines, line] if line else lines


def justify(line: str, width: int) -> str:
    """Return a line whose words reach both margins; gaps on the left are wider by one where they differ."""
    words = line.split()
    if len(words) < 2:
        return line
    blanks = width - sum(map(len, words))
    if blanks < len(words) - 1:
        return line
    each, more = divmod(blanks, len(words) - 1)
    parts = [word + " " * (each + (number < more)) for number, word in enumerate(words[:-1])]
    return "".join(parts) + words[-1]


def justify_text(text: str, width: int) -> list[str]:
    """Return the text in lines that reach both margins, but for the last of each paragraph."""
    lines = wrap(text, width)
    following = [*lines[1:], ""]
    return [justify(line, width) if after else line for line, after in zip(lines, following, strict=True)]


def make_columns(rows: list[list[str]]) -> list[str]:
    """Return rows as text with columns that are two blanks apart, without blanks at the end."""
    count = max(map(len, rows), default=0)
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(count)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
