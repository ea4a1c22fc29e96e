"""Alerts: a webhook and mail, by Airflow's own notifiers, as failure callbacks of the tasks that people must hear about.

Airflow runs callbacks when a task's state is settled, and only logs what goes wrong in one: an alert that cannot be sent changes
nothing. Texts are templates of ours; what failed is filled in as a value.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.http.hooks.http import HttpHook
from airflow.providers.http.notifications import HttpNotifier
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import BaseNotifier, Connection, Context
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.log import mask_secret
from requests.utils import requote_uri

from spark_jobs.settings import read_settings

SMTP_CONNECTION = "smtp_default"
WEBHOOK_SECONDS = 5
FOUND = "{{ exception | default('its process ended without a word; see its log', true) | string | truncate(4000, true, '...', 0) }}"
RUN = "{{ ti.log_url.split('/tasks/')[0] }}"
SENDER = "{{ conn.smtp_default.extra_dejson.get('from_email') or to[0] }}"

Callback = Callable[[Context], Any]


def alerts(what: str, to_do: str) -> list[BaseNotifier]:
    """The failure callbacks that tell people: what happened, in a few words of ours, and what they can do about it.

    One for the webhook, one for mail, each only where its setting names one; the error of the task says what was found and expected.
    """
    settings = read_settings()
    notifiers: list[BaseNotifier] = []
    if settings.alert_webhook:
        text = f"{what}\n{FOUND}\nWhat to do: {to_do}\nDAG run: {RUN}"
        notifiers.append(WebhookNotifier(json={"text": text}, extra_options={"timeout": WEBHOOK_SECONDS}))
    if settings.alert_mail:
        found, run = FOUND.replace(" }}", " | e }}"), RUN.replace(" }}", " | e }}")
        html = f'<p>{found}</p><p>What to do: {to_do}</p><p>DAG run: <a href="{run}">{run}</a></p>'
        notifiers.append(
            SmtpNotifier(
                to=list(settings.alert_mail), from_email=SENDER, subject=f"Ledger: {what}", html_content=html, smtp_conn_id=SMTP_CONNECTION
            )
        )
    return notifiers


class WebhookNotifier(HttpNotifier):
    """Posts to LEDGER_ALERT_WEBHOOK. The address may hold a token, so it is masked in every log before anything can show it."""

    @cached_property
    def hook(self) -> HttpHook:
        """The hook for the address in the settings, in place of one for a connection that is stored in Airflow."""
        return _WebhookHook(method=self.method)

    def notify(self, context: Context) -> None:
        """Send it; raises AirflowException, which does not repeat the address, when it cannot be sent."""
        url = read_settings().alert_webhook or ""
        parts = urlsplit(requote_uri(url))
        for secret in {url, parts.geturl(), parts._replace(scheme="", netloc="").geturl(), parts.path, parts.query, parts.password or ""}:
            mask_secret(secret)
        try:
            super().notify(context)
        except OSError as error:  # of requests: it holds the address
            raise AirflowException(f"LEDGER_ALERT_WEBHOOK cannot be reached: {type(error).__name__}") from None


class _WebhookHook(HttpHook):
    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        return Connection(conn_id=conn_id, conn_type="http", host=read_settings().alert_webhook)


def once_per_release(notifier: BaseNotifier) -> Callback:
    """The same, but silent when it has told of the newest release before. One that could not be sent is sent again."""

    def tell(context: Context) -> None:
        from spark_jobs.releases import latest_release  # not needed to parse a DAG

        settings = read_settings()
        newest = latest_release(settings)
        number = str(newest[0]["release_id"]) if newest else "none"
        told = settings.home / "alerts" / f"stale-release.{type(notifier).__name__}"
        if told.exists() and told.read_text() == number:
            return
        notifier(context)
        told.parent.mkdir(parents=True, exist_ok=True)
        told.write_text(number)

    return tell
