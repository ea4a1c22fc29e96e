"""How many look-ups a second, one at a time and many in flight: `python -m tests.benchmarks.lookups [--milliseconds 20] [--repeats 3]`.

A real Postgres of its own on this machine, whose query takes 20 ms (pg_sleep) and reads a row of `accounts` by its key. Connections are
open before the time is taken. The cache is off: each look-up reaches the database.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.live.products.lookup_client import FOUND, Limits, LookupClient, Source, postgres
from tests.support.databases import execute, running_postgres

IN_FLIGHT = (1, 10, 50, 200)
ACCOUNTS = 10_000
_INSERT = "insert into accounts select 'A' || lpad(n::text, 8, '0'), 1, 'monthly', '1993-01-05', now() from generate_series(1, %s) n"
_SQL = "select district_id, frequency, creation_date, updated_at, pg_sleep({seconds}) from accounts where account_id = $1"


async def rate(url: str, in_flight: int, milliseconds: float, seconds: float = 5) -> float:
    """Look-ups a second, all of which find their key, measured over about so many seconds of waiting."""
    limits = Limits(in_flight=in_flight, cached=1, cache_seconds=0)
    keys = [f"A{number:08}" for number in range(1, ACCOUNTS + 1)]
    async with postgres(Source(_SQL.format(seconds=milliseconds / 1000), url), limits) as ask:
        client = LookupClient(ask, limits)
        await _all(client, keys[: 2 * in_flight])
        count = min(ACCOUNTS, int(seconds * in_flight / (milliseconds / 1000)))
        begun = time.perf_counter()
        await _all(client, keys[:count])
        return count / (time.perf_counter() - begun)


async def _all(client: LookupClient, keys: Sequence[str]) -> None:
    async for answer in client.look_up(keys):
        if answer.status != FOUND:
            raise AssertionError(f"found {answer.status} ({answer.cause}), expected an answer: the rate would be of errors")


def measure(milliseconds: float, repeats: int) -> dict[int, float]:
    """The median rate for each number in flight, printed as a table."""
    with tempfile.TemporaryDirectory() as home, running_postgres(Path(home)) as url:
        execute(url, _INSERT, [(ACCOUNTS,)])
        rounds = [{number: asyncio.run(rate(url, number, milliseconds)) for number in IN_FLIGHT} for _ in range(repeats)]
    rates = {number: statistics.median(each[number] for each in rounds) for number in IN_FLIGHT}
    ratios = {number: statistics.median(each[number] / each[1] for each in rounds) for number in IN_FLIGHT}
    print(f"look-ups of {milliseconds:g} ms, median of {repeats}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(f"{'in flight':>9} {'a second':>10} {'times one at a time':>20}")
    for number in IN_FLIGHT:
        print(f"{number:9} {rates[number]:10,.0f} {ratios[number]:20.1f}")
    return ratios


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lookups")
    parser.add_argument("--milliseconds", type=float, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    measure(options.milliseconds, options.repeats)


if __name__ == "__main__":
    main()
