"""What Airflow imports when it starts: here the libraries that every DAG file needs, so that tasks and parsers, its forks, have them.

Nothing of ours is imported, because a fork must load a changed file. No library starts a thread (fork_server.ONE_THREAD is set in the
environment), so a fork of the scheduler is as safe with them as without.
"""

import aiosmtplib
import deltalake
import openlineage.client.facet
import openlineage.client.serde
import psutil
import pyarrow.compute
import pyarrow.dataset
import requests

__all__: list[str] = []  # no setting of Airflow is overridden

_LIBRARIES = (aiosmtplib, deltalake, openlineage.client, psutil, pyarrow.compute, pyarrow.dataset, requests)
