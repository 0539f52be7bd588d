"""Tables of words and numbers for a terminal; where it is too narrow, they fold.

Columns of sentences then stand below their row, and other columns that do not fit in a
further block under the first, whose rows begin with the same names. A long list keeps
one line a row. No column is left out and no number is broken.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ropelab.show.verdicts import colour_of, mark_verdict

GAP = 2  # spaces between two columns
INDENT = 4  # spaces before what stands below a row
READABLE = 14  # characters of a column of words before its cells are broken into lines
SENTENCE = 40  # characters of a cell from which on it is read as a sentence, with WORDS
WORDS = 5
NARROWEST = 24  # characters that a column of sentences needs
MANY = 40  # rows of a table that is looked through, not read: each has one line


@dataclass(frozen=True)
class Column:
    """A column as texts."""

    title: str
    cells: Sequence[str]
    is_number: bool
    is_decisive: bool = False

    @property
    def unbroken(self) -> int:
        """Characters of the title or the longest cell."""
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def has_sentences(self) -> bool:
        longest = max(self.cells, key=cell_len, default="")
        return cell_len(longest) >= SENTENCE and len(longest.split()) >= WORDS

    @property
    def narrowest(self) -> int:
        """Characters below which a number, or a word, would be broken."""
        title = max(map(len, split_word(self.title)))
        longest_cell = max(map(cell_len, self.cells), default=0)
        if self.is_number:
            return max(title, longest_cell)

        longest_piece = 0
        for cell in self.cells:
            longest_piece = max(longest_piece, *map(cell_len, split_word(cell)))
        readable = NARROWEST if self.has_sentences else READABLE
        return max(title, min(longest_cell, max(readable, longest_piece)))


def print_columns(columns: Sequence[Column], console: Console) -> None:
    """Print columns beside each other, folded where the console is too narrow."""
    if not columns:
        return
    shown = [_mark_verdicts(column) for column in columns]
    if not console.is_terminal:
        shown = list(columns)

    rows = len(shown[0].cells)
    if rows > MANY and not _fit(shown, console.width, unbroken=True):
        shown = _in_one_line(shown, console.width)
    blocks, below = fold(shown, console.width)
    for number, block in enumerate(blocks):
        if number > 0:
            console.print()
        last = number == len(blocks) - 1
        _print_block(block, below if last else [], console)


def _mark_verdicts(column: Column) -> Column:
    cells = [mark_verdict(cell) for cell in column.cells]
    return Column(column.title, cells, column.is_number, column.is_decisive)


def _in_one_line(columns: Sequence[Column], width: int) -> list[Column]:
    """Return columns whose rows fit a line each: the last one ends at the edge, if that
    is enough.
    """
    *others, last = columns
    taken = sum(column.unbroken + GAP for column in others)
    room = width - taken
    if last.is_number or room < len(last.title):
        return list(columns)

    cells = [end_at_edge(cell, room) for cell in last.cells]
    return [*others, Column(last.title, cells, False, last.is_decisive)]


def end_at_edge(text: str, room: int) -> str:
    """Cut a text that has no room, and mark where.

    >>> end_at_edge("a list of names", 9), end_at_edge("a list", 9)
    ('a list o…', 'a list')
    """
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, max(room - 1, 0)).rstrip() + "…"


def fold(
    columns: Sequence[Column], width: int
) -> tuple[list[list[Column]], list[Column]]:
    """Return blocks of columns that fit beside each other, and those that stand below
    the rows of the last block.
    """
    beside = list(columns)
    below = set()
    while not _fit(beside, width):
        sentences = [column for column in beside[1:] if column.has_sentences]
        if not sentences:
            break
        longest = max(sentences, key=lambda column: column.unbroken)
        beside.remove(longest)
        below.add(longest.title)

    names = _find_names(beside, width)
    blocks = []
    block = names
    for column in beside[len(names) :]:
        if len(block) > len(names) and not _fit([*block, column], width):
            blocks.append(block)
            block = names
        block = [*block, column]
    blocks.append(block)
    return blocks, [column for column in columns if column.title in below]


def _find_names(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the first columns that tell all rows apart, if they leave half of the
    width; else the first one.
    """
    for count in range(1, len(columns)):
        names = list(columns[:count])
        rows = list(zip(*(column.cells for column in names), strict=True))
        if not _fit(names, width // 2):
            break
        if len(set(rows)) == len(rows):
            return names
    return list(columns[:1])


def _fit(columns: Sequence[Column], width: int, unbroken: bool = False) -> bool:
    total = -GAP
    for column in columns:
        total += GAP + (column.unbroken if unbroken else column.narrowest)
    return total <= width


def _share_width(columns: Sequence[Column], width: int) -> list[int]:
    """Return the widths of columns: unbroken where there is room, else the widest are
    narrowed, none beyond what it needs.
    """
    widths = [column.unbroken for column in columns]
    least = [column.narrowest for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        spare = [
            number for number in range(len(widths)) if widths[number] > least[number]
        ]
        if not spare:
            break
        widest = max(spare, key=lambda number: (widths[number], number))
        widths[widest] -= 1
    return widths


def _print_block(
    columns: Sequence[Column], below: Sequence[Column], console: Console
) -> None:
    widths = _share_width(columns, console.width)
    rows = range(len(columns[0].cells))
    if not below:
        console.print(_make_grid(columns, widths, rows, with_titles=True))
        return

    console.print(_make_grid(columns, widths, [], with_titles=True))
    for row in rows:
        console.print(_make_grid(columns, widths, [row], with_titles=False))
        for column in below:
            cell = column.cells[row]
            if cell not in ("", "-"):
                line = Text(f"{column.title}: ", style="dim").append(cell, "not dim")
                console.print(Padding(line, (0, 0, 0, INDENT), expand=False))


def _make_grid(
    columns: Sequence[Column],
    widths: Sequence[int],
    rows: Sequence[int],
    with_titles: bool,
) -> Table:
    """Return some rows as a table of rich; numbers stand to the right."""
    grid = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        show_header=with_titles,
    )
    for column, width in zip(columns, widths, strict=True):
        side: Literal["right", "left"] = "right" if column.is_number else "left"
        grid.add_column(
            break_lines(column.title, width),
            justify=side,
            no_wrap=column.is_number,
            overflow="fold",
            min_width=width,
            max_width=width,
            style="bold" if column.is_decisive else "",
        )
    for row in rows:
        cells = []
        for column, width in zip(columns, widths, strict=True):
            cells.append(_style_cell(column.cells[row], width))
        grid.add_row(*cells)
    return grid


def _style_cell(cell: str, width: int) -> Text:
    return Text(break_lines(cell, width), style=colour_of(cell))


def split_word(text: str) -> list[str]:
    """Split a text into the pieces that are never broken."""
    # A point inside a number is no place for a break.
    return re.findall(r"(?:[^\s_./,]|\.(?=\d))+[_./,]*|[_./,]+", text) or [""]


def break_lines(text: str, width: int) -> str:
    """Break a text into lines, between words if possible.

    >>> break_lines("max_position_embeddings of it", 16)
    'max_position_\\nembeddings of it'
    """
    lines = [""]
    for word in text.split(" "):
        pieces = [word] if len(word) <= width else split_word(word)
        for number, piece in enumerate(pieces):
            gap = " " if lines[-1] and not number else ""
            if lines[-1] and len(lines[-1] + gap + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += gap + piece
    return "\n".join(lines)
