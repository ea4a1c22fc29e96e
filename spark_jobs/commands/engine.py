"""The engine: what must hold before it, and what it calls. Its options are in arguments.py."""

import argparse

from spark_jobs.runtime import session
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state
from spark_jobs.service.services import ENGINE


def run_engine(settings: Settings, options: argparse.Namespace) -> None:
    """One Spark application whose JVM the other jobs borrow, one after the other. A second engine is refused at once."""
    from spark_jobs.service import engine

    if not settings.spark_master.startswith("local"):
        raise SettingsError(
            f"LEDGER_SPARK_MASTER: found {settings.spark_master!r}, expected a local one: on a cluster each job has a driver"
        )
    obeyed = desired_state.read_wanted(settings, ENGINE).number if options.obeying is None else options.obeying
    with engine.owning(settings, options.run_id) as heart, engine.listening(settings) as listener, engine.ForkServer(settings) as forks:
        forks.keep()  # beside the start of the JVM
        spark = session.start_session(settings, "ledger engine", session.engine_conf())
        heart.beat(jvm=identify(session.jvm_of(spark)))
        engine.Engine(spark, settings, listener, heart, forks).serve(options.jobs, lambda: desired_state.must_end(settings, ENGINE, obeyed))


def run_engine_control(settings: Settings, options: argparse.Namespace) -> None:
    """Stop or restart the engine gracefully, or log its status. Starts no JVM."""
    desired_state.run(settings, ENGINE, options.action, options.who, options.why, options.wait)
