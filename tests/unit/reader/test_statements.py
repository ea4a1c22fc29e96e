"""What the reader of releases takes for a query."""

import pytest

from include.reader.statements import QueryError, check_query, split

QUERIES = [
    "select 1",
    "  SELECT 1 ;\n",
    "-- a note; of two parts\nselect 1;",
    "/* a note; of two parts */ select 1",
    "with x as (select 1) select * from x",
    "values (1), (2)",
    "(select 1) union (select 2)",
    "show tables",
    "describe gold.daily_totals",
    'desc "gold"."daily_totals"',
    "explain select 1",
    "explain analyze verbose format indent\nselect 1",
    "select 'into; it''s' as \"into;\" -- into;",
    "select $$into; it's$$, $a$into; $$ ' $a$, e'it\\'s; into', `into;` from x",
    "select a$$b from x",
]
OTHERS = {
    "": "0 statements",
    " ; ;": "0 statements",
    "select 1; select 2": "2 statements",
    "selec 1": "'selec'",
    "select1": "'select1'",
    "copy (select 1) to '/tmp/x.csv' stored as csv": "'copy'",
    "-- x\rcopy (select 1) to '/tmp/x.csv'\nselect 1": "'copy'",
    "/**/copy (select 1) to '/tmp/x.csv' stored as csv": "'copy'",
    "explain analyze copy (select 1) to '/tmp/x.csv' stored as csv": "'explain'",
    "explain (analyze) copy (select 1) to '/tmp/x.csv' stored as csv": "'explain'",
    "describe analyze copy (select 1) to '/tmp/x.csv'": "'describe'",
    "create external table x stored as csv location '/etc/passwd'": "'create'",
    "create view x as select 1": "'create'",
    "insert into gold.daily_totals select * from gold.daily_totals": "'insert'",
    "delete from gold.daily_totals": "'delete'",
    "drop table gold.daily_totals": "'drop'",
    "set datafusion.sql_parser.parse_float_as_decimal = false": "'set'",
    "prepare x as select 1": "'prepare'",
    "select 1 as a into x": "INTO",
    "select $$'$$; copy (select 1) to '/tmp/x.csv' --'": "2 statements",
    "select $a$ ' $$ ' $a$; drop table gold.daily_totals --'": "2 statements",
    "select 1$$'$$; drop table gold.daily_totals --'": "2 statements",
    "select $$'$$ as a into x --'": "INTO",
    "select e'\\'' as a into x --'": "INTO",
    "select `'` from (select 1 as \"'\") into x --'": "INTO",
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_let_through(query: str) -> None:
    assert check_query(query).split() == check_query(f"{query}\n;").split()


@pytest.mark.parametrize("statement", OTHERS)
def test_anything_else_is_refused_in_one_line(statement: str) -> None:
    with pytest.raises(QueryError, match=r"^found ") as raised:
        check_query(statement)
    assert OTHERS[statement] in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_the_engine_sees_the_word_that_was_checked() -> None:
    """It takes comments to be nested; these would hide the query from it, and not the rest."""
    hidden = "copy (select 1) to '/tmp/x.csv' stored as csv"
    assert check_query(f"/* a /* b */ select 1 */ {hidden}") == f"select 1 */ {hidden}"
    assert check_query(f"/*/**/ select 1 */ {hidden}") == f"select 1 */ {hidden}"


def test_semicolons_within_quotes_and_comments_separate_nothing() -> None:
    assert split("a ';' \";\" -- ;\n/* ; */ 'it''s;'; b") == ["a ';' \";\" -- ;\n/* ; */ 'it''s;'", " b"]
    assert split("a 'not ended; b") == ["a 'not ended", " b"]
