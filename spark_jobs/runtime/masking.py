"""What logs and messages must not show: passwords in URLs, and values in the errors of other programs.

Spark, Arrow and Java quote what they could not read, and that may be a person's.

include/spark/log4j2.properties does the same for what Spark's JVM logs itself.
"""

import re

_HIDDEN = "(not shown: it may quote a value)"
_QUOTING = (
    # Spark: `[CONDITION] text SQLSTATE: 22...`; class 22 is a data exception, 23 a broken constraint, P0 raised by a query.
    # A condition of a stream comes before the stack that holds the cause.
    (
        re.compile(r"\[(?!STREAM_FAILED|FOREACH_BATCH)([A-Z][A-Z0-9_.]*)\] .*?(SQLSTATE: (?:22|23|P0)\w{3})", re.DOTALL),
        rf"[\1] {_HIDDEN} \2",
    ),
    (re.compile(r"(Arrow error: [A-Za-z -]+: ).*"), rf"\1{_HIDDEN}"),
    (
        re.compile(r"(For input string: |Text |Unrecognized token |isoformat string: |invalid literal for [^:]*: )['\"].*['\"]"),
        rf"\1{_HIDDEN}",
    ),
)


def mask_error(text: str) -> str:
    """The text of an error, without the parts in which programs are known to quote values."""
    for pattern, shown in _QUOTING:
        text = pattern.sub(shown, text)
    return text


def mask_url(url: str) -> str:
    """A URL with its password, if it has one, as three stars; the query, which may hold one too, is left out."""
    return re.sub(r"(://[^:@/\s]*):\S*@", r"\1:***@", url).partition("?")[0]
