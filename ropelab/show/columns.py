"""Tables of words and numbers for a terminal, folded if the terminal is too narrow.

In a folded table a column of sentences is printed below each row of the first block.
Other columns that do not fit are printed in a further block under the first one; its rows
begin with the same names. A table of many rows keeps one line for each row. No column is
left out and no number is broken.
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

from ropelab.show.verdicts import choose_colour, mark_verdict

# The number of spaces between two columns.
GAP = 2
# The number of spaces before a sentence below a row.
INDENT = 4
# The least width of a column of words, in characters, if its cells are broken into lines.
READABLE_WIDTH = 14
# A cell is called a sentence if it has at least this many characters, and this many
# words.
SENTENCE_CHARACTERS = 40
SENTENCE_WORDS = 5
# The least width of a column of sentences, in characters.
SENTENCE_WIDTH = 24
# The most rows of a table that is read in full. A longer table is looked through, and
# each of its rows has one line.
MOST_ROWS_READ = 40


@dataclass(frozen=True)
class Column:
    """A column as texts."""

    title: str
    cells: Sequence[str]
    is_number: bool
    # True for a column that is printed bold.
    is_decisive: bool = False

    @property
    def unbroken_width(self) -> int:
        """The width of the title or of the longest cell."""
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def has_sentences(self) -> bool:
        longest = max(self.cells, key=cell_len, default="")
        is_long = cell_len(longest) >= SENTENCE_CHARACTERS
        return is_long and len(longest.split()) >= SENTENCE_WORDS

    @property
    def least_width(self) -> int:
        """The least width in which no number and no piece of a word is broken.

        Cells of several words or pieces may be broken, but the column does not get
        narrower than SENTENCE_WIDTH or READABLE_WIDTH, unless its cells are shorter.
        """
        title_width = max(map(len, split_word(self.title)))
        longest_cell = max(map(cell_len, self.cells), default=0)
        if self.is_number:
            return max(title_width, longest_cell)

        longest_piece = 0
        for cell in self.cells:
            longest_piece = max(longest_piece, *map(cell_len, split_word(cell)))
        readable_width = SENTENCE_WIDTH if self.has_sentences else READABLE_WIDTH
        cell_width = min(longest_cell, max(readable_width, longest_piece))
        return max(title_width, cell_width)


def print_columns(columns: Sequence[Column], console: Console) -> None:
    """Print columns beside each other, folded if the console is too narrow."""
    if not columns:
        return
    columns = list(columns)
    if console.is_terminal:
        columns = [_mark_verdicts(column) for column in columns]

    is_long = len(columns[0].cells) > MOST_ROWS_READ
    if is_long and not _fit_unbroken(columns, console.width):
        columns = _cut_last(columns, console.width)
    blocks, columns_below = fold(columns, console.width)
    for number, block in enumerate(blocks):
        if number > 0:
            console.print()
        # The sentences stand at the first columns, which a reader looks at first.
        _print_block(block, columns_below if number == 0 else [], console)


def _mark_verdicts(column: Column) -> Column:
    """Return a column with a sign before each cell that is a verdict."""
    cells = [mark_verdict(cell) for cell in column.cells]
    return Column(column.title, cells, column.is_number, column.is_decisive)


def _cut_last(columns: Sequence[Column], width: int) -> list[Column]:
    """Cut the cells of the last column at the edge, so that each row fits one line.

    The columns stay as they are if the last column has numbers, or has too little room.
    """
    *first_columns, last = columns
    room = width - sum(column.unbroken_width + GAP for column in first_columns)
    if last.is_number or room < len(last.title):
        return list(columns)

    cells = [end_at_edge(cell, room) for cell in last.cells]
    cut_column = Column(last.title, cells, False, last.is_decisive)
    return [*first_columns, cut_column]


def end_at_edge(text: str, room: int) -> str:
    """Cut a text that is wider than `room` characters, and mark the cut.

    >>> end_at_edge("a list of names", 9), end_at_edge("a list", 9)
    ('a list o…', 'a list')
    """
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, max(room - 1, 0)).rstrip() + "…"


def fold(
    columns: Sequence[Column], width: int
) -> tuple[list[list[Column]], list[Column]]:
    """Return blocks of columns, each of which fits into the width, and the columns that
    are printed below the rows of the first block.
    """
    columns_in_blocks = list(columns)
    titles_below = set()
    while not _fit(columns_in_blocks, width):
        sentences = [column for column in columns_in_blocks[1:] if column.has_sentences]
        if not sentences:
            break
        longest = max(sentences, key=lambda column: column.unbroken_width)
        columns_in_blocks.remove(longest)
        titles_below.add(longest.title)

    names = _find_names(columns_in_blocks, width)
    blocks = []
    block = names
    for column in columns_in_blocks[len(names) :]:
        if len(block) > len(names) and not _fit([*block, column], width):
            blocks.append(block)
            block = names
        block = [*block, column]
    blocks.append(block)
    return blocks, [column for column in columns if column.title in titles_below]


def _find_names(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns with which each row begins in all blocks.

    They are the fewest first columns that make all rows different. If these take more
    than half of the width, it is the first column alone.
    """
    for count in range(1, len(columns)):
        names = list(columns[:count])
        rows = list(zip(*(column.cells for column in names), strict=True))
        if not _fit(names, width // 2):
            break
        if len(set(rows)) == len(rows):
            return names
    return list(columns[:1])


def _fit(columns: Sequence[Column], width: int) -> bool:
    """Return True if columns fit beside each other when their cells are broken into
    lines.
    """
    return _sum_widths([column.least_width for column in columns]) <= width


def _fit_unbroken(columns: Sequence[Column], width: int) -> bool:
    return _sum_widths([column.unbroken_width for column in columns]) <= width


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _share_width(columns: Sequence[Column], width: int) -> list[int]:
    """Return the widths of columns.

    If there is no room for unbroken cells, the widest column is narrowed, step by step,
    until all fit. No column gets narrower than its least width.
    """
    widths = [column.unbroken_width for column in columns]
    least_widths = [column.least_width for column in columns]
    while _sum_widths(widths) > width:
        can_shrink = []
        for number, least in enumerate(least_widths):
            if widths[number] > least:
                can_shrink.append(number)
        if not can_shrink:
            break
        widest = max(can_shrink, key=lambda number: (widths[number], number))
        widths[widest] -= 1
    return widths


def _print_block(
    columns: Sequence[Column], columns_below: Sequence[Column], console: Console
) -> None:
    """Print columns beside each other, and below each row the cells of `columns_below`,
    each on lines of its own.
    """
    widths = _share_width(columns, console.width)
    rows = range(len(columns[0].cells))
    if not columns_below:
        console.print(_make_grid(columns, widths, rows, with_titles=True))
        return

    console.print(_make_grid(columns, widths, [], with_titles=True))
    for row in rows:
        console.print(_make_grid(columns, widths, [row], with_titles=False))
        for column in columns_below:
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
    """Return some rows as a table of rich, with numbers aligned to the right."""
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
    return Text(break_lines(cell, width), style=choose_colour(cell))


def split_word(text: str) -> list[str]:
    """Split a text into the pieces that are never broken.

    A text may be broken after a blank, `_`, `.`, `/` and `,`.
    """
    # A point before a digit is inside a number, and belongs to the piece.
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
            # There is a blank before a word, unless it begins a line, and no blank before
            # the further pieces of a word.
            is_word_start = number == 0
            gap = " " if lines[-1] and is_word_start else ""
            if lines[-1] and len(lines[-1] + gap + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += gap + piece
    return "\n".join(lines)
