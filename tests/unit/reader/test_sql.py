"""`make sql`: at a prompt, from a script, and as one query."""

import io
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from include.reader.__main__ import main
from include.reader.layout import lay_out
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.publishing import EVERY_TABLE, gold_follows, one_more, publish, released_on

Copy = Callable[[], Settings]
TOTALS = "select type, transactions, amount from gold.daily_totals order by type"
LAID_OUT = """\
type   | transactions |              amount
-------+--------------+--------------------
Credit |            2 | 9007199254741093.10
Debit  |            2 |               40.01
(2 rows)
"""


@pytest.fixture
def home(good_release: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(good_release.home))
    return good_release


def test_one_query_is_answered(home: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--query", TOTALS]) == 0
    assert main(["--release", "1", "--query", f"-- totals\n{TOTALS};\n"]) == 0
    assert capsys.readouterr() == (LAID_OUT * 2, "")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--query", "drop table gold.daily_totals"], "found 'drop', expected SELECT, ", 2),
        (["--query", ""], "found 0 statements, expected one query", 2),
        (["--release", "-1", "--query", TOTALS], "release: found '-1', expected a number such as 3", 2),
        (["--release", "2", "--query", TOTALS], "there is no release 2: found 1", 1),
    ],
)
def test_an_error_is_one_line(home: Settings, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, code: int) -> None:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"sql: {message}")
    assert err.count("\n") == 1


def test_make_hands_a_query_on_as_it_is(home: Settings) -> None:
    query = """select 'it''s' as "a b", '$HOME' as c"""
    command = ["make", "--old-file=setup", "--no-print-directory", "sql", "RELEASE=1", f"QUERY={query.replace('$', '$$')}"]
    environment = os.environ | {"RELEASE": "7", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[2:], done.stderr, done.returncode) == (["it's | $HOME", "(1 row)"], "", 0)
    without = [word for word in command if "=" not in word or word.startswith("--")]
    done = subprocess.run(without, cwd=ROOT, env=environment, input="select 1 as one", capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["one", "---", "  1", "(1 row)"], "")


def test_a_script_is_followed_to_its_first_error(home: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "\\release 1\nselect 1 as one; select ';' as\n two; select 3\nas three;\nselect transactions / 0 from gold.daily_totals;select 4"
    )
    assert main([], io.StringIO(script)) == 2
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line in ("one", "two", "three")] == ["one", "two", "three"]
    assert err == "sql: Divide by zero error\n"
    assert main([], io.StringIO("select 1 as one;\n\\q\nselect 2 as two")) == 0
    assert main([], io.StringIO("select 3 as last")) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line in ("one", "two", "last")] == ["one", "last"]


def test_commands_tell_of_releases_and_tables(copy_home: Copy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings = copy_home()
    released_on(settings, *(datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2)), datetime.now(UTC), datetime(2026, 1, 2, tzinfo=UTC))
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    assert main([], io.StringIO("\\tables\n\\releases\n\\help\n\\releases now\n")) == 2
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert f"{'gold.daily_totals':34} version      1              2 rows" in lines
    assert sum(line.startswith(("bronze.", "silver.", "gold.")) for line in lines) == len(EVERY_TABLE)
    offered = [line for line in lines if line.startswith("release ")]
    assert [line.split()[1] for line in offered] == ["2", "3", "4"]
    assert offered[-1] == "release 4 of 2026-01-02 00:00:00 UTC"
    assert r"\release [N]   go to release N, or to the newest" in lines
    assert err == "sql: found \\releases, expected \\tables, \\releases, \\release [N], \\help or \\q\n"


def test_a_prompt_stays_on_its_release_and_tells_of_a_newer_one(copy_home: Copy) -> None:
    settings = copy_home()
    publish(settings)
    ours, theirs = pty.openpty()
    environment = os.environ | {"LEDGER_HOME": str(settings.home), "TERM": "dumb", "HOME": str(settings.home)}
    command = [sys.executable, "-m", "include.reader"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def read_to(prompt: str) -> str:
        text = ""
        while not text.endswith(prompt):
            assert select.select([ours], [], [], 60)[0], f"no {prompt!r} after {text!r}"
            text += os.read(ours, 65536).decode()
        return text.replace("\r\n", "\n")

    def say(line: str, prompt: str = "release 1> ") -> str:
        os.write(ours, f"{line}\n".encode())
        return read_to(prompt)

    count = "select count(*) as silver from silver.transactions;"
    try:
        assert f", {len(EVERY_TABLE)} tables. \\help lists the commands" in read_to("release 1> ")
        assert "\n     4\n" in say(count)
        assert "sql: found 'selec', expected SELECT" in say("selec;")
        one_more(settings, 3)
        gold_follows(settings, 3)
        publish(settings, last_batch=3)
        assert "Release 2 is out: \\release goes there.\n" in say("select 1", "     ...> ") + say("as one;")
        found = say(count)
        assert "\n     4\n" in found
        assert "is out" not in found
        assert "Release 2 of " in say("\\release", "release 2> ")
        assert "\n     5\n" in say(count, "release 2> ")
        assert "\n     4\n" in say("\\release 1") + say(count)
        os.write(ours, b"\\q\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not [path.name for path in settings.home.iterdir() if "history" in path.name]


def test_cells_are_safe_and_aligned() -> None:
    rows = [
        {"a": b"\x1b[2J\xff", "b": Decimal("-1E+2"), "c": True, "d": datetime(2026, 1, 1, 0, 0, 0, 5, UTC), "e": ["x"], "f": "é\n"},
        {"a": None, "b": Decimal("0.10"), "c": False, "d": None, "e": None, "f": "long" * 9},
    ]
    kinds = [pa.binary(), pa.decimal128(9, 2), pa.bool_(), pa.timestamp("us", "UTC"), pa.list_(pa.string()), pa.string()]
    schema = pa.schema(list(zip("abcdef", kinds, strict=True)))
    assert list(lay_out(schema, [pa.RecordBatch.from_pylist(rows, schema)], widest=30)) == [
        "a           |       b | c     | d                          | e     | f",
        "------------+---------+-------+----------------------------+-------+-------------------------------",
        r"\x1b[2J\xff | -100.00 | true  | 2026-01-01 00:00:00.000005 | ['x'] | é\n",
        "null        |    0.10 | false | null                       | null  | longlonglonglonglonglonglongl…",
        "(2 rows)",
    ]


@pytest.mark.parametrize(
    ("rows", "most", "told"), [(0, 2, "(0 rows)"), (1, 2, "(1 row)"), (2, 2, "(2 rows)"), (2500, None, "(2,500 rows)")]
)
def test_rows_are_counted(rows: int, most: int | None, told: str) -> None:
    batch = pa.record_batch({"n": list(range(rows))}, schema=pa.schema([("n", pa.int64())]))
    lines = list(lay_out(batch.schema, [batch], most))
    assert (len(lines), lines[-1]) == (rows + 3, told)


def test_a_person_is_not_flooded() -> None:
    batch = pa.record_batch({"n": [1, 2, 3]})
    assert list(lay_out(batch.schema, [batch], most=2))[2:] == ["1", "2", "(the first 2 rows: ask for less to see others)"]
