"""`python -m include.airflow_roles [--user NAME ROLE FILE]...`: Airflow's database brought up to date, the roles, and users.

Both stacks run it before the parts of Airflow, in Airflow's environment. It may be run again at any time. A role gets exactly the
permissions below; a user that exists keeps its roles and gets the password of its file.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VIEWER, OPERATOR, ADMIN = "Ledger viewer", "Ledger operator", "Admin"  # Admin is Airflow's own

_READ, _EDIT, _CREATE, _MENU = "can_read", "can_edit", "can_create", "menu_access"
# No task log and no XCom: these quote rows. Without the questions ("HITL Detail") Airflow lists no DAG, without the plugins no "Quality".
_LOOK = (
    *((_READ, name) for name in ("DAGs", "DAG Dependencies", "DAG Code", "DAG Runs", "DAG Versions", "DAG Warnings")),
    *((_READ, name) for name in ("Task Instances", "Assets", "Asset Aliases", "Jobs", "Cluster Activity", "ImportError")),
    *((_READ, name) for name in ("HITL Detail", "Plugins", "Website")),
    *((_MENU, name) for name in ("DAGs", "DAG Dependencies", "DAG Runs", "Assets", "Cluster Activity", "Jobs", "Task Instances")),
    *((_MENU, name) for name in ("Browse", "Documentation", "Docs")),
)
# Nothing is deleted: a run says who decided. No connection, variable, pool, configuration, user or audit log.
_OPERATE = (
    *((_READ, name) for name in ("Task Logs", "XComs", "Pools")),
    *((_MENU, name) for name in ("XComs", "HITL Detail")),
    *((_CREATE, name) for name in ("DAG Runs", "Task Instances", "Assets")),
    *((_EDIT, name) for name in ("DAGs", "DAG Runs", "Task Instances", "HITL Detail")),
)
ROLES = {VIEWER: frozenset(_LOOK), OPERATOR: frozenset(_LOOK + _OPERATE)}


def fingerprint() -> str:
    """The roles as text: another text, other permissions."""
    return json.dumps({role: sorted(permissions) for role, permissions in ROLES.items()})


def set_up(users: Sequence[tuple[str, str, Path]] = ()) -> None:
    """Migrate the database, then make what is missing of the roles and of `users`: name, role, file of the password."""
    os.environ["AIRFLOW__FAB__UPDATE_FAB_PERMS"] = "True"  # Airflow's own roles, too, which its parts leave as they are
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
    from airflow.utils.db import initdb
    from airflow.utils.providers_configuration_loader import providers_configuration_loaded

    initdb()

    @providers_configuration_loaded
    def fill() -> None:
        with get_application_builder() as builder:
            _make_roles(builder.sm)
            for name, role, file in users:
                _make_user(builder.sm, name, role, file.read_text())

    fill()


def _make_roles(security: Any) -> None:
    security.bulk_sync_roles([{"role": role, "perms": sorted(permissions)} for role, permissions in ROLES.items()])
    for role, permissions in ROLES.items():
        found = security.find_role(role)
        for each in list(found.permissions):
            if (each.action.name, each.resource.name) not in permissions:
                security.remove_permission_from_role(found, each)


def _make_user(security: Any, name: str, role: str, password: str) -> None:
    from werkzeug.security import check_password_hash

    user = security.find_user(name)
    if user is None:
        security.add_user(name, "Ledger", name, f"{name}@localhost", security.find_role(role), password)
    elif not check_password_hash(user.password or "", password):
        security.reset_password(user.id, password)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do it once; ends with a traceback where it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m include.airflow_roles", description=__doc__)
    parser.add_argument("--user", nargs=3, action="append", default=[], metavar=("NAME", "ROLE", "FILE"))
    set_up([(name, role, Path(file)) for name, role, file in parser.parse_args(arguments).user])


if __name__ == "__main__":
    main()
