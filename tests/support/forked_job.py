"""`python -m tests.support.forked_job CODE|sleep`: says whether it was forked, and ends with the exit code, or sleeps."""

import os
import sys
import time

print(f"forked {os.getsid(0) == os.getpid()}, run {os.environ['LEDGER_RUN_ID']}")
if sys.argv[1] == "sleep":
    time.sleep(600)
sys.exit(int(sys.argv[1]))
