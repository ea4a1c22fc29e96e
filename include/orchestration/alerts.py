"""Alerts: a webhook and mail, by notifiers of Airflow, as failure callbacks of tasks.

Airflow runs callbacks when a task's state is settled, and only logs what goes wrong in one: an alert that cannot be sent changes
nothing. Texts are templates of ours; what failed is filled in as a value.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import requests
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import BaseNotifier, Context
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.log import mask_secret

from spark_jobs.runtime.settings import read_settings

SMTP_CONNECTION = "smtp_default"
WEBHOOK_SECONDS = 5
FOUND = "{{ exception | default('its process ended without an error; see its log', true) | string | truncate(4000, true, '...', 0) }}"
RUN = "{{ ti.log_url.split('/tasks/')[0] }}"
SENDER = "{{ conn.smtp_default.extra_dejson.get('from_email') or to[0] }}"

Callback = Callable[[Context], Any]


def alerts(what: str, to_do: str) -> list[BaseNotifier]:
    """The failure callbacks that send an alert: what happened, and what an operator can do about it.

    One for the webhook, one for mail, each only where its setting names one; the error of the task says what was found and expected.
    """
    settings = read_settings()
    notifiers: list[BaseNotifier] = []
    if settings.alert_webhook:
        notifiers.append(WebhookNotifier(f"{what}\n{FOUND}\nWhat to do: {to_do}\nDAG run: {RUN}"))
    if settings.alert_mail:
        found, run = FOUND.replace(" }}", " | e }}"), RUN.replace(" }}", " | e }}")
        html = f'<p>{found}</p><p>What to do: {to_do}</p><p>DAG run: <a href="{run}">{run}</a></p>'
        notifiers.append(
            SmtpNotifier(
                to=list(settings.alert_mail), from_email=SENDER, subject=f"Ledger: {what}", html_content=html, smtp_conn_id=SMTP_CONNECTION
            )
        )
    return notifiers


class WebhookNotifier(BaseNotifier):
    """Posts to LEDGER_ALERT_WEBHOOK. The address may hold a token, so no log and no error shows it, nor what the server answers."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Context) -> None:
        """Send it; raises AirflowException, which does not repeat the address, when it cannot be sent."""
        address = str(read_settings().alert_webhook)
        mask_secret(address)  # for the messages of libraries, of which the level DEBUG has more
        try:
            status = requests.post(address, json={"text": self.text}, timeout=WEBHOOK_SECONDS).status_code
            problem = f"it answered {status}" if status >= HTTPStatus.BAD_REQUEST else None
        except requests.RequestException as error:
            problem = type(error).__name__
        if problem:
            raise AirflowException(f"the alert was not sent to LEDGER_ALERT_WEBHOOK: {problem}")


def once_per_release(notifier: BaseNotifier) -> Callback:
    """The same, but silent when it was sent for the newest release before. One that could not be sent is sent again."""

    def send(context: Context) -> None:
        from spark_jobs.releases.releases import latest_release  # not needed to parse a DAG

        settings = read_settings()
        newest = latest_release(settings)
        number = str(newest.release_id) if newest else "none"
        sent = settings.home / "alerts" / f"stale-release.{type(notifier).__name__}"
        if sent.exists() and sent.read_text() == number:
            return
        notifier(context)
        sent.parent.mkdir(parents=True, exist_ok=True)
        sent.write_text(number)

    return send
