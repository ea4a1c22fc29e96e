"""Look-ups of keys in a database: asynchronous, a bounded number in flight, and a result or an error as a value. Knows nothing of Spark.

Each part is a library's: the pool asyncpg's, the retries tenacity's, the cache cachetools', the circuit breaker circuitbreaker's.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from threading import Thread
from typing import Any, TypeVar

import asyncpg
from cachetools import TTLCache
from circuitbreaker import CircuitBreaker, CircuitBreakerError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

FOUND, UNKNOWN, ERROR = "found", "unknown", "error"
NO_TIME = "no time left for this batch"
_IDLE_SECONDS = 30.0  # then a connection is closed
_CANCEL_SECONDS = 1.0  # for Postgres to end a query that took too long; then its connection is dropped
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, ValueError, CircuitBreakerError)
_PASSING = ("08", "40", "53", "57")  # SQLSTATE: connections, conflicts, lack of resources, a server that stops or starts
_OF_THE_KEY = "22"  # SQLSTATE: the server answers, and cannot read this key
T = TypeVar("T")
Row = tuple[Any, ...]
Ask = Callable[[str], Awaitable[Row | None]]  # the row of a key, None for a key that there is not


@dataclass(frozen=True)
class Limits:
    """How look-ups are made. A `found` answer is kept for `cache_seconds`; others are not: an account may be opened any moment."""

    in_flight: int = 50
    connect_seconds: float = 10.0  # many connect at once, and the machine may be busy
    answer_seconds: float = 3.0
    attempts: int = 3
    pause_seconds: float = 0.1  # a random time up to this before the second attempt; up to twice as long before each further one
    cache_seconds: float = 300.0
    cached: int = 100_000
    failures: int = 20  # in a row; then the circuit is open: no look-up is tried
    open_seconds: float = 5.0  # then look-ups are tried again
    batch_seconds: float = 100.0  # a stop waits for two minutes, the supervision for five


@dataclass(frozen=True)
class Answer:
    """What the look-up of a key gave at a time (UTC). `row`: of a key that is found. `cause`: of an error; quotes no value."""

    key: str
    status: str
    at: datetime
    row: Row | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Source:
    """A database, and the query of one key ($1). Neither address nor password is in its text."""

    sql: str
    url: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


class TooLate(TimeoutError):
    """Says what did not come in time."""


class LookupClient:
    """Looks keys up in a loop; cache and circuit breaker live as long as it does."""

    def __init__(self, ask: Ask, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._cache: TTLCache[str, Answer] = TTLCache(limits.cached, limits.cache_seconds, clock)
        self._breaker = CircuitBreaker(limits.failures, limits.open_seconds, lambda _, error: not is_of_the_key(error), "look-ups")
        again = retry(
            stop=stop_after_attempt(limits.attempts),
            wait=wait_random_exponential(multiplier=limits.pause_seconds),
            retry=retry_if_exception(passes),
            reraise=True,
        )
        self._ask: Ask = again(self._breaker.decorate(ask))

    async def look_up(self, keys: Sequence[str], *, ordered: bool = False, until: float | None = None) -> AsyncGenerator[Answer, None]:
        """An answer for each key, as they come, or in the order of the keys; none raises an error of the database.

        `until`: the moment of the clock from which on nothing more is asked; by default so many seconds from now as a batch may take.
        """
        until = self._clock() + self._limits.batch_seconds if until is None else until
        answers: asyncio.Queue[tuple[int, Answer] | Exception] = asyncio.Queue()
        waiting = iter(enumerate(keys))

        async def work() -> None:
            try:
                for place, key in waiting:
                    answers.put_nowait((place, await self._answer(key, until)))
            except Exception as error:
                answers.put_nowait(error)
                raise

        workers = [asyncio.create_task(work()) for _ in range(min(self._limits.in_flight, len(keys)))]
        early: dict[int, Answer] = {}
        try:
            for place in range(len(keys)):
                while place not in early:
                    came = await answers.get()
                    if isinstance(came, Exception):
                        raise came
                    early[came[0] if ordered else place] = came[1]
                yield early.pop(place)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _answer(self, key: str, until: float) -> Answer:
        if (known := self._cache.get(key)) is not None:
            return known
        if self._clock() >= until:
            return Answer(key, ERROR, datetime.now(UTC), cause=NO_TIME)
        try:
            row = await self._ask(key)
        except _FAILURES as error:
            return Answer(key, ERROR, datetime.now(UTC), cause=self._cause(error))
        answer = Answer(key, UNKNOWN if row is None else FOUND, datetime.now(UTC), row)
        if row is not None:
            self._cache[key] = answer
        return answer

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, CircuitBreakerError):
            last = self._breaker.last_failure
            return f"circuit open after {self._cause(last)}" if last else "circuit open"
        if isinstance(error, TooLate):
            return str(error)
        state = getattr(error, "sqlstate", None)
        return f"{type(error).__name__} (SQLSTATE {state})" if state else type(error).__name__


class Session:
    """The look-ups of a process: a loop in a thread of its own, with a pool of connections, for callers that are not asynchronous."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._limits, self._loop = limits, asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, name="look-ups", daemon=True).start()
        self._pool = postgres(source, limits)  # open as long as the process lives
        self._client = LookupClient(self._run(self._pool.__aenter__()), limits)

    def begin_batch(self) -> float:
        """The moment until which the look-ups of a batch that begins now are made."""
        return time.monotonic() + self._limits.batch_seconds

    def look_up(self, keys: Sequence[str], until: float) -> dict[str, Answer]:
        """The answers, by key, of different keys."""

        async def collect() -> dict[str, Answer]:
            return {answer.key: answer async for answer in self._client.look_up(keys, until=until)}

        return self._run(collect())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@cache
def session(source: Source, limits: Limits) -> Session:
    """The session of this process, which it keeps from batch to batch."""
    return Session(source, limits)


@asynccontextmanager
async def postgres(source: Source, limits: Limits) -> AsyncGenerator[Ask, None]:
    """A query of Postgres, by a pool of as many connections as may be in flight. Connects when it must; an idle connection is closed."""
    pool = asyncpg.create_pool(
        source.url,
        **({"password": source.password} if source.password else {}),
        min_size=0,
        max_size=limits.in_flight,
        max_inactive_connection_lifetime=_IDLE_SECONDS,
        reset=_leave,
        server_settings={"application_name": "ledger look-ups"},
    )

    async def ask(key: str) -> Row | None:
        async with _within(limits.connect_seconds, "connection"):
            connection = await pool.acquire()
        try:
            async with _within(limits.answer_seconds, "answer"):
                row = await connection.fetchrow(source.sql, key)
        finally:
            await pool.release(connection, timeout=_CANCEL_SECONDS)  # or else it waits for ever for a server that does not answer
        return None if row is None else tuple(row)

    async with pool:
        yield ask


async def _leave(_: asyncpg.Connection) -> None:
    """A query that only reads leaves nothing to reset: asking Postgres to do so would take as long as the look-up."""


@asynccontextmanager
async def _within(seconds: float, what: str) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TooLate(f"no {what} within {seconds:g} s") from None


def passes(error: BaseException) -> bool:
    """Whether another attempt may do better: no connection, no answer in time, a server that stops, starts or has too much to do."""
    return isinstance(error, OSError) or _state(error).startswith(_PASSING)


def is_of_the_key(error: BaseException) -> bool:
    """Whether the server answers, and cannot read this key."""
    return isinstance(error, asyncpg.DataError) or _state(error).startswith(_OF_THE_KEY)


def _state(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""
