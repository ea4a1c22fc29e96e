"""`python -m tests.support.outbox_process UPTO`: publishes the outbox of LEDGER_HOME in small transactions, as often as it is let."""

import sys

from spark_jobs.live import outbox
from spark_jobs.runtime.settings import read_settings

ROWS_AT_ONCE = 7

if __name__ == "__main__":
    outbox.ROWS_AT_ONCE = ROWS_AT_ONCE
    sys.stdout.write(f"{outbox.Outbox(read_settings()).publish(int(sys.argv[1]))}\n")
