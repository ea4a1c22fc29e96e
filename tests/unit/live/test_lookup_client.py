"""Look-ups with a database of the test: how many are in flight, what is tried again, kept, given up, and in which order answers come.

What is of Postgres is in tests/integration/live/test_lookups.py.
"""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import asyncpg
import circuitbreaker
import pytest

from spark_jobs.live.products.lookup_client import ERROR, FOUND, NO_TIME, UNKNOWN, Answer, Ask, Limits, LookupClient, Row, Source, TooLate

KEYS = [f"A{number:08}" for number in range(20)]
LIMITS = Limits(in_flight=4, pause_seconds=0.001)
GONE = ConnectionRefusedError("127.0.0.1")


@dataclass
class Clock:
    """A clock that the test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Database:
    """Answers in an order of its own. `fails`: what the next looks at a key raise."""

    fails: dict[str, list[Exception]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    flying: int = 0
    most: int = 0

    async def ask(self, key: str) -> Row | None:
        self.asked.append(key)
        self.flying += 1
        self.most = max(self.most, self.flying)
        for _ in range(1 + int(key[1:]) * 7 % 5):  # later keys may answer earlier
            await asyncio.sleep(0)
        self.flying -= 1
        if raised := self.fails.get(key):
            raise raised.pop()
        return None if key == "A00000003" else (key.lower(),)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a client and of its breaker."""
    clock = Clock()
    monkeypatch.setattr(circuitbreaker, "monotonic", clock)
    return clock


async def collect(client: LookupClient, keys: Sequence[str], *, ordered: bool = False, until: float | None = None) -> list[Answer]:
    return [answer async for answer in client.look_up(keys, ordered=ordered, until=until)]


def answers(ask: Ask, *batches: Sequence[str], limits: Limits = LIMITS, ordered: bool = False) -> list[list[Answer]]:
    """What a client answers to batches, one after the other."""

    async def run() -> list[list[Answer]]:
        client = LookupClient(ask, limits)
        return [await collect(client, keys, ordered=ordered) for keys in batches]

    return asyncio.run(run())


def test_every_key_gets_its_answer_with_no_more_in_flight_than_allowed() -> None:
    database = Database()
    (found,) = answers(database.ask, KEYS)
    assert {answer.key: answer.row for answer in found} == {key: None if key == "A00000003" else (key.lower(),) for key in KEYS}
    assert {answer.key for answer in found if answer.status == UNKNOWN} == {"A00000003"}
    assert {answer.status for answer in found} == {FOUND, UNKNOWN}
    assert (database.most, len(found), sorted(database.asked)) == (4, 20, KEYS)
    assert answers(Database().ask, []) == [[]]


def test_order_is_a_choice() -> None:
    """Ordered, the answers come as the keys; not ordered, as the database gives them."""
    (ordered,) = answers(Database().ask, KEYS, ordered=True)
    assert [answer.key for answer in ordered] == KEYS
    (as_they_come,) = answers(Database().ask, KEYS)
    assert [answer.key for answer in as_they_come] != KEYS
    assert sorted(answer.key for answer in as_they_come) == KEYS


def test_an_answer_that_is_there_does_not_wait_for_a_slow_one_unless_order_is_asked_for() -> None:
    async def run(ordered: bool) -> list[str]:
        is_free = asyncio.Event()

        async def ask(key: str) -> Row:
            if key == KEYS[0]:
                await is_free.wait()
            return (key,)

        came = []
        async with aclosing(LookupClient(ask, LIMITS).look_up(KEYS[:3], ordered=ordered)) as found:
            if ordered:
                asyncio.get_running_loop().call_later(0.01, is_free.set)
            async for answer in found:
                came.append(answer.key)
                if len(came) == 2:
                    is_free.set()
        return came

    assert asyncio.run(run(ordered=False)) == [KEYS[1], KEYS[2], KEYS[0]]
    assert asyncio.run(run(ordered=True)) == KEYS[:3]


@pytest.mark.parametrize(
    ("error", "asked", "cause"),
    [
        (GONE, 3, "ConnectionRefusedError"),
        (TooLate("no answer within 5 s"), 3, "no answer within 5 s"),
        (asyncpg.CannotConnectNowError("starting up"), 3, "CannotConnectNowError (SQLSTATE 57P03)"),
        (asyncpg.TooManyConnectionsError("secret"), 3, "TooManyConnectionsError (SQLSTATE 53300)"),
        (asyncpg.UndefinedTableError("relation secret"), 1, "UndefinedTableError (SQLSTATE 42P01)"),
        (asyncpg.InvalidPasswordError("user secret"), 1, "InvalidPasswordError (SQLSTATE 28P01)"),
        (asyncpg.InterfaceError("pool is closing"), 1, "InterfaceError"),
        (ValueError("invalid literal for int(): 'secret'"), 1, "ValueError"),
    ],
)
def test_what_may_pass_is_tried_again_and_what_does_not_is_an_error_without_values(error: Exception, asked: int, cause: str) -> None:
    database = Database({KEYS[0]: [error] * 3})
    (found,) = answers(database.ask, [KEYS[0], KEYS[1]])
    said = {answer.key: (answer.status, answer.cause, answer.row) for answer in found}
    assert said == {KEYS[0]: (ERROR, cause, None), KEYS[1]: (FOUND, None, (KEYS[1].lower(),))}
    assert database.asked.count(KEYS[0]) == asked


def test_another_attempt_may_find_it() -> None:
    (found,) = answers(Database({KEYS[0]: [GONE, GONE]}).ask, KEYS[:1])
    assert [(answer.status, answer.cause) for answer in found] == [(FOUND, None)]


def test_what_is_found_is_kept_for_a_while_and_nothing_else(clock: Clock) -> None:
    database = Database({KEYS[0]: [asyncpg.DataError()]})

    async def run() -> None:
        client, keys = LookupClient(database.ask, LIMITS, clock), [KEYS[0], KEYS[1], KEYS[3]]
        first = await collect(client, keys, ordered=True)
        assert [answer.status for answer in first] == [ERROR, FOUND, UNKNOWN]
        for now, asked in ((LIMITS.cache_seconds - 1, [KEYS[0], KEYS[3]]), (LIMITS.cache_seconds + 1, [KEYS[1], KEYS[3]])):
            clock.now, database.asked = now, []
            again = await collect(client, keys, ordered=True)
            assert [answer.status for answer in again] == [FOUND, FOUND, UNKNOWN]
            assert sorted(database.asked) == asked
            assert (again[1] is first[1]) == (KEYS[1] not in asked)  # with the time at which it was looked up

    asyncio.run(run())


def test_a_database_that_is_away_is_left_alone_until_it_may_be_back(clock: Clock) -> None:
    """After some failures in a row the circuit is open: nothing is asked. Then it is tried again, and closed by the first answer."""
    limits = replace(LIMITS, failures=5, attempts=2)
    is_away = True
    asked: list[str] = []

    async def ask(key: str) -> Row:
        asked.append(key)
        await asyncio.sleep(0)
        if is_away:
            raise GONE
        return (key,)

    async def run() -> None:
        nonlocal is_away
        client = LookupClient(ask, limits, clock)
        causes = [answer.cause for answer in await collect(client, KEYS)]
        assert causes.count("circuit open after ConnectionRefusedError") >= len(KEYS) - limits.in_flight
        assert set(causes) <= {"circuit open after ConnectionRefusedError", "ConnectionRefusedError"}
        assert limits.failures <= len(asked) < limits.failures + limits.in_flight
        asked.clear()
        clock.now = limits.open_seconds - 0.1
        assert {answer.cause for answer in await collect(client, KEYS)} == {"circuit open after ConnectionRefusedError"}
        assert asked == []
        clock.now = limits.open_seconds + 0.1  # half open, and still away
        assert {answer.status for answer in await collect(client, KEYS)} == {ERROR}
        assert 0 < len(asked) <= limits.in_flight
        is_away, clock.now = False, clock.now + limits.open_seconds + 0.1
        assert {answer.status for answer in await collect(client, KEYS)} == {FOUND}

    asyncio.run(run())


def test_a_key_that_the_database_cannot_read_opens_no_circuit() -> None:
    database = Database({key: [asyncpg.CharacterNotInRepertoireError("\\0")] for key in KEYS[4:]})
    (found,) = answers(database.ask, [*KEYS[4:], KEYS[0]], limits=replace(LIMITS, failures=3))
    assert [answer.status for answer in found].count(ERROR) == len(KEYS[4:])
    assert {answer.cause for answer in found} == {None, "CharacterNotInRepertoireError (SQLSTATE 22021)"}


def test_a_batch_takes_no_longer_than_it_may() -> None:
    ticks = itertools.count()

    async def run() -> list[Answer]:
        client = LookupClient(Database().ask, replace(LIMITS, in_flight=1), lambda: float(next(ticks)))
        return await collect(client, KEYS, ordered=True, until=40)

    found = asyncio.run(run())
    given_up = [answer for answer in found if answer.cause == NO_TIME]
    assert 0 < len(given_up) < len(KEYS)
    assert found[-len(given_up) :] == given_up
    assert {answer.status for answer in given_up} == {ERROR}


def test_a_mistake_of_ours_is_raised_and_an_abandoned_look_up_leaves_nothing_behind() -> None:
    database = Database({KEYS[0]: [ZeroDivisionError()]})

    async def abandon() -> int:
        async with aclosing(LookupClient(Database().ask, LIMITS).look_up(KEYS)) as found:
            await anext(found)
        return len(asyncio.all_tasks())

    with pytest.raises(ZeroDivisionError):
        answers(database.ask, KEYS)
    assert asyncio.run(abandon()) == 1


def test_address_and_password_are_in_no_text() -> None:
    source = Source("select 1", "postgresql://ledger:s3cret@host/db", "s3cret")
    assert "s3cret" not in f"{source!r} {source}"
    assert "host" not in repr(source)
