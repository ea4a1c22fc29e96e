"""What may be asked of a release: one query at a time, which reads tables and nothing else.

The engine (DataFusion) would also write files (`COPY`, and `EXPLAIN ANALYZE COPY`) and read any file of this machine
(`CREATE EXTERNAL TABLE`), so a statement is let through only if it begins like a query.
"""

import re

from spark_jobs.runtime.errors import SettingsError

_COMMENTS = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_QUERY = re.compile(r"(SELECT|WITH|VALUES|SHOW)\b|\(+\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)
_EXPLAIN = re.compile(r"EXPLAIN\s+(ANALYZE\s+)?(VERBOSE\s+)?(FORMAT\s+\w+\s+)?(SELECT|WITH|VALUES)\b", re.IGNORECASE)
_DESCRIBE = re.compile(r"DESC(RIBE)?\s+[\w.\"]+\s*$", re.IGNORECASE)
_INTO = re.compile(r"\bINTO\b", re.IGNORECASE)
# Quoted text and comments: what ends a statement outside of them does not end it within. As the engine reads them: e'...' has escapes
# with a backslash, $tag$...$tag$ has none, and a dollar sign within a name is a letter.
_PIECE = re.compile(
    r"""(?P<quoted>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/)"""
    r"|;|[^\W\d][\w$]*|.",
    re.DOTALL,
)
_NOISE = re.compile(
    r"^(External error: |Error during planning: |Schema error: |Arrow error: |Execution error: |Generic DeltaTable error: )+"
)
_LONGEST_MESSAGE = 400


class QueryError(SettingsError):
    """A statement that is no query, or cannot be answered."""

    @classmethod
    def of(cls, error: BaseException) -> "QueryError":
        """What the engine says, in one line."""
        text = _NOISE.sub("", " ".join(str(error).split())).replace("'datafusion.public.", "'").replace("'datafusion.", "'")
        if gone := re.search(r"Object at location (\S+) not found", text):
            return cls(f"the file {gone[1]} of this release is gone: open a newer release, or an archived one")
        hint = ": tables are named as gold.daily_totals, and `show tables` lists them" if re.search("^table .* not found", text) else ""
        return cls(f"{text[:_LONGEST_MESSAGE]}{hint}")


def check_query(text: str) -> str:
    """The one statement of a text, from its first word to its semicolon; raises QueryError unless it is a query.

    The engine is given no more than this, so that it sees the same first word.
    """
    parts = [part for part in split(text) if _bare(part)]
    if len(parts) != 1:
        raise QueryError(f"found {len(parts)} statements, expected one query")
    start = _COMMENTS.match(parts[0])
    statement = parts[0][start.end() if start else 0 :]
    if not any(form.match(statement) for form in (_QUERY, _EXPLAIN, _DESCRIBE)):
        found = re.match(r"\S{1,30}", statement)
        raise QueryError(
            f"found {found[0] if found else statement[:30]!r}, expected SELECT, WITH, VALUES, SHOW, DESCRIBE table or EXPLAIN of a query: "
            "a release is read only"
        )
    if _INTO.search(_bare(statement)):
        raise QueryError("found INTO, expected a query that makes no table: a release is read only")
    return statement


def split(text: str) -> list[str]:
    """The statements of a text that semicolons separate; the last one is what follows the last semicolon."""
    parts = [""]
    for piece in _PIECE.finditer(text.replace("\r", "\n")):
        if piece[0] == ";":
            parts.append("")
        else:
            parts[-1] += piece[0]
    return parts


def _bare(statement: str) -> str:
    """A statement without comments and quoted text."""
    return "".join(piece[0] for piece in _PIECE.finditer(statement) if not piece["quoted"]).strip()
