"""Who may ask what of Airflow, its pages' own interface and FAB: each route by the least role that it answers.

A role may ask what those before it may. *Nobody*: switched off by Airflow's configuration (connection tests, the configuration, teams).
`GET /api/v2/auth/logout` is left out: it ends the login of whoever asks, and nothing else.
"""

_BY_ROLE = {
    "viewer": """
GET /api/v2/assets
GET /api/v2/assets/aliases
GET /api/v2/assets/aliases/{asset_alias_id}
GET /api/v2/assets/events
GET /api/v2/assets/{asset_id}
GET /api/v2/assets/{asset_id}/queuedEvents
GET /api/v2/assets/{asset_id}/state-store
GET /api/v2/assets/{asset_id}/state-store/{key:path}
GET /api/v2/auth/login
GET /api/v2/backfills
GET /api/v2/backfills/{backfill_id}
GET /api/v2/dagSources/{dag_id}
GET /api/v2/dagStats
GET /api/v2/dagTags
GET /api/v2/dagWarnings
GET /api/v2/dags
GET /api/v2/dags/{dag_id}
GET /api/v2/dags/{dag_id}/assets/queuedEvents
GET /api/v2/dags/{dag_id}/assets/{asset_id}/queuedEvents
GET /api/v2/dags/{dag_id}/dagRuns
POST /api/v2/dags/{dag_id}/dagRuns/list
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/hitlDetails
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances
POST /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/list
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/dependencies
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/links
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/listMapped
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store/{key:path}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/tries
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/tries/{task_try_number}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/dependencies
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/hitlDetails
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/hitlDetails/tries/{try_number}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/tries
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/tries/{task_try_number}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/upstreamAssetEvents
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/wait
GET /api/v2/dags/{dag_id}/dagVersions
GET /api/v2/dags/{dag_id}/dagVersions/{version_number}
GET /api/v2/dags/{dag_id}/details
POST /api/v2/dags/{dag_id}/favorite
GET /api/v2/dags/{dag_id}/tasks
GET /api/v2/dags/{dag_id}/tasks/{task_id}
POST /api/v2/dags/{dag_id}/unfavorite
GET /api/v2/importErrors
GET /api/v2/importErrors/{import_error_id}
GET /api/v2/jobs
GET /api/v2/monitor/health
GET /api/v2/plugins
GET /api/v2/plugins/importErrors
GET /api/v2/version
GET /ui/auth/me
GET /ui/auth/menus
POST /ui/auth/token
GET /ui/backfills
GET /ui/calendar/{dag_id}
GET /ui/config
GET /ui/dags
GET /ui/dags/{dag_id}/dagRuns/{dag_run_id}/deadlines
GET /ui/dags/{dag_id}/dagRuns/{dag_run_id}/stats
GET /ui/dags/{dag_id}/deadlineAlerts
GET /ui/dags/{dag_id}/latest_run
GET /ui/dashboard/dag_stats
GET /ui/dashboard/historical_metrics_data
GET /ui/dependencies
GET /ui/gantt/{dag_id}/{run_id}
GET /ui/grid/runs/{dag_id}
GET /ui/grid/structure/{dag_id}
GET /ui/grid/ti_summaries/{dag_id}
GET /ui/next_run_assets/{dag_id}
GET /ui/partitioned_dag_runs
GET /ui/pending_partitioned_dag_run/{dag_id}
GET /ui/structure/structure_data
""",
    "operator": """
POST /api/v2/assets/events
POST /api/v2/assets/{asset_id}/materialize
POST /api/v2/backfills
POST /api/v2/backfills/dry_run
PUT /api/v2/backfills/{backfill_id}/cancel
PUT /api/v2/backfills/{backfill_id}/pause
PUT /api/v2/backfills/{backfill_id}/unpause
PATCH /api/v2/dags
PATCH /api/v2/dags/{dag_id}
POST /api/v2/dags/{dag_id}/clearDagRuns
POST /api/v2/dags/{dag_id}/clearPartitions
POST /api/v2/dags/{dag_id}/clearTaskInstances
PATCH,POST /api/v2/dags/{dag_id}/dagRuns
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}
POST /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/clear
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskGroupInstances/{group_id}
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskGroupInstances/{group_id}/dry_run
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/dry_run
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/externalLogUrl/{try_number}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/logs/{try_number}
PATCH,PUT /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store/{key:path}
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/xcomEntries
GET /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/xcomEntries/{xcom_key:path}
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/dry_run
PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/{map_index}/hitlDetails
PUT /api/v2/parseDagFile/{file_token}
GET /api/v2/pools
GET /api/v2/pools/{pool_name:path}
""",
    "admin": """
DELETE /api/v2/assets/{asset_id}/queuedEvents
DELETE /api/v2/assets/{asset_id}/state-store
DELETE,PUT /api/v2/assets/{asset_id}/state-store/{key:path}
GET,PATCH,POST /api/v2/connections
POST /api/v2/connections/defaults
POST /api/v2/connections/test
DELETE,GET,PATCH /api/v2/connections/{connection_id}
DELETE /api/v2/dags/{dag_id}
DELETE /api/v2/dags/{dag_id}/assets/queuedEvents
DELETE /api/v2/dags/{dag_id}/assets/{asset_id}/queuedEvents
DELETE /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}
DELETE /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}
DELETE /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store
DELETE /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store/{key:path}
POST /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/xcomEntries
DELETE,PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/xcomEntries/{xcom_key:path}
GET /api/v2/eventLogs
GET /api/v2/eventLogs/{event_log_id}
PATCH,POST /api/v2/pools
DELETE,PATCH /api/v2/pools/{pool_name:path}
GET /api/v2/providers
GET,PATCH,POST /api/v2/variables
DELETE,GET,PATCH /api/v2/variables/{variable_key:path}
GET /auth/fab/v1/permissions
GET,POST /auth/fab/v1/roles
DELETE,GET,PATCH /auth/fab/v1/roles/{name}
GET,POST /auth/fab/v1/users
DELETE,GET,PATCH /auth/fab/v1/users/{username}
GET /ui/connections/hook_meta
""",
    "nobody": """
GET /api/v2/config
GET /api/v2/config/section/{section}/option/{option}
GET,POST /api/v2/connections/enqueue-test
GET /ui/teams
""",
}

LEAST = {
    (method, path): role
    for role, lines in _BY_ROLE.items()
    for methods, path in (line.split() for line in lines.strip().splitlines())
    for method in methods.split(",")
}
