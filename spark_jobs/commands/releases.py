"""The jobs around releases: judged, published, decided. None starts a JVM but the rehearsal of rules. Their options are in arguments.py."""

import argparse

from spark_jobs.commands.preconditions import ROLL_BACK, Wants, ready
from spark_jobs.releases import archive, catalogues, decisions, gates, rehearsal, releases, rule_rehearsal
from spark_jobs.runtime.settings import Settings


def run_gate(settings: Settings, options: argparse.Namespace) -> None:
    """Judge what a layer's job wrote since the last judgement that passed, or rehearse a changed suite or rule set on stored batches."""
    if options.suite:
        rehearse = rule_rehearsal.run if options.suite.suffix in (".yaml", ".yml") else rehearsal.run
        rehearse(settings, options.layer, options.suite, options.since)
        return
    with ready(settings, options, Wants((ROLL_BACK,))):
        gates.run(settings, options.layer, options.run_id, verdict_file=options.verdict, limit_seconds=settings.gate_seconds)


def run_release(settings: Settings, options: argparse.Namespace) -> None:
    """Name one version of every table for readers, or keep what a release named. Starts no JVM."""
    if options.keep is None:
        with ready(settings, options, Wants((ROLL_BACK,))):
            releases.publish(settings)
    else:
        archive.copy_release(settings, options.keep)
    catalogues.bring_up_to_date(settings)


def run_decide(settings: Settings, options: argparse.Namespace) -> None:
    """What a person decides about closed gates: release anyway, roll back or wait. Starts no JVM."""
    decisions.decide(settings, options.choice.replace("-", " "), options.who, options.why)
