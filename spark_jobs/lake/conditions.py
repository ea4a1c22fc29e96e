"""The condition of a command line that picks cells: one boolean expression over the columns of a table, and nothing else.

It becomes a part of SQL that an engine (DataFusion) runs, so whatever could end it, or start another query within it, is refused.
"""

import re
from collections.abc import Iterable

from spark_jobs.runtime.errors import SettingsError

EXAMPLE = "window_start = '2013-01-05' and type = 'Debit'"
_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|--|/\*|.", re.DOTALL)
_NEVER = {";": "a semicolon", "--": "a comment", "/*": "a comment", "`": "a backtick", "$": "a dollar sign", "\0": "a null character"}
_QUERIES = {
    "select",
    "values",
    "table",
    "with",
    "from",
    "into",
    "union",
    "intersect",
    "except",
    "over",
    "order",
    "group",
    "having",
    "limit",
}
_LITERAL = r"(?:(?:date|timestamp)\s*)?('(?:[^']|'')*'|-?\d+(?:\.\d+)?)(?![\w.])"
_LONGEST = 10_000


def check(text: str) -> str:
    """The expression; raises SettingsError for what is more, or less, than one expression. Its columns are not checked."""
    if not text.strip() or len(text) > _LONGEST:
        raise _refused(f"{len(text.strip())} characters")
    depth, before = 0, ""
    for piece in _PIECE.findall(text):
        if piece in _NEVER:
            raise _refused(_NEVER[piece])
        if piece in ("'", '"') or (piece[0] in "'\"" and re.search(r"[\w&]$", before)):  # such as E'...', which ends elsewhere
            raise _refused(f"a quote that is not closed or follows {before!r} without a blank")
        if piece.lower() in _QUERIES and not (piece.lower() == "from" and before.lower() == "distinct"):
            raise _refused(f"the word {piece}")
        depth += (piece == "(") - (piece == ")")
        if depth < 0:
            break
        if not piece.isspace():
            before = piece
        elif before.lower() != "distinct":
            before = ""
    if depth:
        raise _refused("brackets that do not match")
    return text


def equalities(text: str, columns: Iterable[str]) -> dict[str, str]:
    """The columns that a checked expression compares with a literal, and that literal as written."""
    bare = {name: re.search(rf"(?<![\w.'\"]){re.escape(name)}\s*=\s*{_LITERAL}", text, re.IGNORECASE) for name in columns}
    return {name: found[1] for name, found in bare.items() if found}


def _refused(found: str) -> SettingsError:
    return SettingsError(f"--where: found {found}, expected one condition on the table's columns and nothing else, such as {EXAMPLE}")
