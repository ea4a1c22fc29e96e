"""Look-ups in a real Postgres: what it answers, and what becomes of rows while it is away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from include.stack import postgres
from spark_jobs.lake.tables import LIVE_ACCOUNT_LOOKUPS, LIVE_LOOKUP_ERRORS, LIVE_TRANSACTIONS
from spark_jobs.live.products import lookup_client, lookups
from spark_jobs.live.products.lookup_client import ERROR, FOUND, UNKNOWN, Answer, Limits, LookupClient, Source
from spark_jobs.runtime.settings import endpoints_file
from tests.support.databases import execute, running_postgres, start
from tests.support.ledger import Ledger, Row, await_that
from tests.support.live_lake import arrive

pytestmark = pytest.mark.integration

CHANGED = datetime(2024, 1, 1, 12, tzinfo=UTC)
INSERT = "insert into accounts values (%s, 18, 'monthly', '1993-01-05', '2024-01-01 13:00+01')"
LIMITS = Limits(in_flight=10, failures=5, open_seconds=0.2, pause_seconds=0.01)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("postgres")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with running_postgres(home) as url:
        execute(url, INSERT, [(f"A{number:08}",) for number in range(1, 101)])
        yield url


async def ask_all(client: LookupClient, *keys: str) -> list[Answer]:
    return [answer async for answer in client.look_up(keys, ordered=True)]


@asynccontextmanager
async def client_of(url: str, limits: Limits = LIMITS, sql: str = lookups._SQL) -> AsyncIterator[LookupClient]:
    async with lookup_client.postgres(Source(sql, url), limits) as ask:
        yield LookupClient(ask, limits)


def test_what_postgres_knows_comes_back_in_types_of_the_table_by_at_most_so_many_connections(url: str) -> None:
    counted = "select count(*)::int, pg_sleep(0.01) from pg_stat_activity where application_name = 'ledger look-ups' and $1 > ''"

    async def run() -> None:
        async with client_of(url) as client:
            known, strange, unread = await ask_all(client, "A00000001", "A99999999", "A\0")
        assert (known.status, known.row) == (FOUND, (18, "monthly", date(1993, 1, 5), CHANGED))
        assert (strange.status, strange.row, strange.cause) == (UNKNOWN, None, None)
        assert (unread.status, unread.row) == (ERROR, None)
        assert "22021" in (unread.cause or "")
        async with client_of(url, replace(LIMITS, in_flight=4), counted) as client:
            connections = await ask_all(client, *map(str, range(50)))
        assert {answer.row[0] for answer in connections if answer.row} <= {1, 2, 3, 4}
        assert {answer.status for answer in connections} == {FOUND}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("select pg_sleep(60) where $1 > ''", "no answer within 0.2 s"),
        ("select * from nosuch where id = $1", "UndefinedTableError (SQLSTATE 42P01)"),
    ],
)
def test_a_query_that_does_not_do_is_an_error(url: str, sql: str, cause: str) -> None:
    async def run() -> list[Answer]:
        async with client_of(url, replace(LIMITS, answer_seconds=0.2, attempts=1), sql) as client:
            return await ask_all(client, "a", "b")

    assert [(answer.status, answer.cause) for answer in asyncio.run(run())] == [(ERROR, cause)] * 2


def test_a_server_that_takes_connections_and_says_nothing_costs_a_batch_seconds() -> None:
    """Of a thousand keys few wait: then the circuit is open."""
    limits = replace(LIMITS, connect_seconds=0.2, open_seconds=60)

    @asynccontextmanager
    async def silence() -> AsyncIterator[int]:
        is_over = asyncio.Event()

        async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await is_over.wait()
            writer.close()

        async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]
            is_over.set()

    async def run() -> tuple[list[Answer], float]:
        async with silence() as port:
            begun = asyncio.get_running_loop().time()
            async with client_of(f"postgresql://ledger:x@127.0.0.1:{port}/ledger", limits) as client:
                answers = await ask_all(client, *map(str, range(1000)))
            return answers, asyncio.get_running_loop().time() - begun

    answers, seconds = asyncio.run(run())
    causes = [answer.cause for answer in answers]
    assert causes.count("circuit open after no connection within 0.2 s") >= 1000 - limits.in_flight
    assert {answer.status for answer in answers} == {ERROR}
    assert seconds < 10


def test_a_server_that_comes_back_is_used_again(home: Path, url: str) -> None:
    async def run() -> None:
        async with client_of(url) as client:
            assert (await ask_all(client, "A00000001"))[0].status == FOUND
            await asyncio.to_thread(postgres.stop_gently, home)
            away = await ask_all(client, *(f"A{number:08}" for number in range(1, 101)))
            assert [answer.status for answer in away] == [FOUND] + [ERROR] * 99  # the first is kept
            await asyncio.to_thread(start, home)
            for _ in range(100):
                if (back := await ask_all(client, "A00000002"))[0].status == FOUND:
                    break
                await asyncio.sleep(0.1)
            assert back[0].row == (18, "monthly", date(1993, 1, 5), CHANGED)

    asyncio.run(run())


@pytest.mark.faults
def test_live_continues_while_the_database_is_away(home: Path, url: str, tmp_path: Path) -> None:
    """As a process, with the stack's own Postgres, which stops and starts meanwhile: each row is looked up, or an error; none is lost."""
    endpoints_file(home).write_text(json.dumps({"postgres_url": postgres.own_url(home)}))
    ledger = Ledger(home)
    password = postgres.password_file(home).read_text()
    said = tmp_path / "live.log"
    some(ledger, 1)
    with ledger.running("live", output=said, LEDGER_LIVE_LOOKUPS="on", LEDGER_LOOKUPS_IN_FLIGHT="5") as live:
        await_rows(ledger, live.poll, 3)
        postgres.stop_gently(home)
        some(ledger, 2, accounts=("A00000004", "A00000005", "A77777777"))
        await_rows(ledger, live.poll, 6)
        start(home)
        number = 2
        while (number := number + 1) and not [row for row in ledger.rows(LIVE_ACCOUNT_LOOKUPS) if row["_batch"] > 2 and is_found(row)]:
            some(ledger, number, accounts=("A00000006",))
            await_rows(ledger, live.poll, 4 + number)
        await_that(lambda: len(ledger.rows(LIVE_LOOKUP_ERRORS)) == sum(row["lookup_status"] == ERROR for row in looked_up(ledger)))
        live.terminate()
        assert live.wait(timeout=120) == 0, said.read_text()
    rows = looked_up(ledger)
    assert sorted(row["transaction_id"] for row in rows) == sorted(row["transaction_id"] for row in ledger.rows(LIVE_TRANSACTIONS))
    by_batch = {number: [row["lookup_status"] for row in rows if row["_batch"] == number] for number in (1, 2)}
    assert by_batch == {1: [FOUND, UNKNOWN, FOUND], 2: [ERROR] * 3}
    assert {(row["district_id"], row["frequency"], row["creation_date"], row["updated_at"]) for row in rows if is_found(row)} == {
        (18, "monthly", date(1993, 1, 5), CHANGED)
    }
    failed = {row["transaction_id"]: row["cause"] for row in ledger.rows(LIVE_LOOKUP_ERRORS)}
    assert failed == {row["transaction_id"]: row["cause"] for row in rows if row["lookup_status"] == ERROR}
    told = said.read_text()
    assert "live look-ups of accounts: no answer for 3 rows (" in told
    assert password not in told


def some(ledger: Ledger, batch: int, accounts: tuple[str, ...] = ("A00000001", "A99999999", "A00000001")) -> None:
    """A bronze batch of a row for each of these accounts."""
    arrive(ledger.settings, batch, *((f"{batch}-{n}", "2024-01-01 10:00:00", {"accountId": account}) for n, account in enumerate(accounts)))


def looked_up(ledger: Ledger) -> list[Row]:
    """All rows of the look-ups in order of arrival; as the producer spreads them, a batch's first partition comes first."""
    rows = ledger.rows(LIVE_ACCOUNT_LOOKUPS) if ledger.exists(LIVE_ACCOUNT_LOOKUPS) else []
    return sorted(rows, key=lambda row: (row["_batch"], row["transaction_id"]))


def is_found(row: Row) -> bool:
    return bool(row["lookup_status"] == FOUND)


def await_rows(ledger: Ledger, ended: Callable[[], int | None], count: int) -> None:
    await_that(lambda: ended() is not None or len(looked_up(ledger)) == count)
    assert ended() is None
    assert len(looked_up(ledger)) == count
