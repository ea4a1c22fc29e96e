"""How a job asks an engine for its JVM, and what it says at its end; the other side is a socket of the test."""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spark_jobs.runtime import engine, session
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings, read_settings

NEEDS = {"master": "local[2]"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path / ("long" * 40))})


@pytest.fixture
def listener(settings: Settings) -> Iterator[socket.socket]:
    """The engine's socket; who connects finds the answer that was sent before."""
    (settings.checkpoints / engine.FOLDER).mkdir(parents=True)
    with engine.opened(settings) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(engine.address(folder))
        made.listen()
        made.settimeout(0)  # whoever is to be found here has connected before
        yield made


def answering(listener: socket.socket, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]) -> list[socket.socket]:
    """The engine gives this answer to whoever asks; returns the connections, as they come."""
    taken: list[socket.socket] = []

    def receive(lines: object) -> dict[str, object]:
        taken.append(listener.accept()[0])
        return answer

    monkeypatch.setattr(engine, "receive", receive)
    return taken


def said(connection: socket.socket) -> list[dict[str, object]]:
    """What the job has said, once it has closed its side."""
    with connection.makefile() as lines:
        return [json.loads(line) for line in lines]


def test_without_an_engine_a_job_has_a_jvm_of_its_own(settings: Settings, listener: socket.socket) -> None:
    with engine.lent(True):
        listener.close()  # its file is there, as after a kill
        assert engine.borrow(settings, "gold", NEEDS, ()) is None
        (settings.checkpoints / engine.FOLDER / "socket").unlink()
        assert engine.borrow(settings, "gold", NEEDS, ()) is None
        (settings.checkpoints / engine.FOLDER).rmdir()
        assert engine.borrow(settings, "gold", NEEDS, ()) is None


@pytest.mark.parametrize("ending", [None, GateClosed("closed"), ValueError("unforeseen")])
def test_a_job_says_that_it_has_done_however_it_went(
    settings: Settings, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, ending: Exception | None
) -> None:
    monkeypatch.setattr(engine, "_is_lost", lambda: False)  # there is no JVM to ask
    taken = answering(listener, monkeypatch, {"port": 1, "secret": "s", "pid": 7})
    with suppress(GateClosed, ValueError), engine.lent(True):
        assert engine.borrow(settings, "gold", NEEDS, session.state_conf()) == {"port": 1, "secret": "s", "pid": 7}
        if ending:
            raise ending
    asked, *then = said(taken[0])
    assert (asked["job"], asked["needs"], then) == ("gold", NEEDS, [{"done": True}])


def test_an_interrupted_job_says_nothing(settings: Settings, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = answering(listener, monkeypatch, {"port": 1, "secret": "s", "pid": 7})
    with suppress(KeyboardInterrupt), engine.lent(True):
        engine.borrow(settings, "gold", NEEDS, ())
        raise KeyboardInterrupt
    connection = engine._borrowed.connection
    assert connection is not None
    connection.close()
    engine._borrowed.connection = None
    assert [sorted(each) for each in said(taken[0])] == [["job", "needs", "pid"]]


def test_the_end_of_the_engine_is_what_its_job_fails_with(
    settings: Settings, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = answering(listener, monkeypatch, {"port": 1, "secret": "s", "pid": 7})

    def run() -> None:
        with engine.lent(True):
            engine.borrow(settings, "gold", NEEDS, ())
            with taken[0].makefile() as lines:
                lines.readline()
            taken[0].close()
            raise OSError("Answer from Java side is empty")

    with pytest.raises(engine.JvmLost, match=r"the engine \(process 7\) ended while this job ran in it: run it again"):
        run()


def test_a_refused_job_has_a_jvm_of_its_own(
    settings: Settings, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    taken = answering(listener, monkeypatch, {"refused": "it runs silver"})
    with engine.lent(True):
        assert engine.borrow(settings, "gold", NEEDS, ()) is None
    assert caplog.messages == ["the engine does not take this job (it runs silver): it starts a JVM of its own"]
    assert len(said(taken[0])) == 1


@pytest.mark.parametrize("more", [session.bronze_conf(), session.live_conf(), {"spark.jars": "x"}], ids=["bronze", "live", "export"])
def test_a_job_that_needs_another_jvm_does_not_ask(
    settings: Settings, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    taken = answering(listener, monkeypatch, {"port": 1, "secret": "s", "pid": 7})
    with engine.lent(True):
        assert engine.borrow(settings, "other", NEEDS, more) is None
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # started by spark-submit
        assert engine.borrow(settings, "gold", NEEDS, ()) is None
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    with engine.lent(False):  # --engine none
        assert engine.borrow(settings, "gold", NEEDS, ()) is None
    assert taken == []


def test_how_a_jvm_compiles_is_no_need_of_a_job(settings: Settings) -> None:
    conf = session.submit_conf(settings)
    assert engine.needs("local", conf | session.engine_conf()) == engine.needs("local", conf)
    assert engine.needs("local", conf | {"spark.driver.memory": "9g"}) != engine.needs("local", conf)
    assert "-XX:TieredStopAtLevel=1" not in session.engine_conf()["spark.driver.extraJavaOptions"]


def test_a_jvm_of_its_own_compiles_for_the_rows_that_it_has_to_work_on(settings: Settings) -> None:
    conf = session.submit_conf(settings)
    few, many = (session._own_jvm_conf(settings, conf, rows)["spark.driver.extraJavaOptions"] for rows in (999_999, 1_000_000))
    assert "-XX:TieredStopAtLevel=1" in few
    assert "-XX:TieredStopAtLevel" not in many
    assert {"-XX:+UseParallelGC", "-XX:+ExitOnOutOfMemoryError", "-Duser.timezone=UTC"} <= set(few.split()) & set(many.split())


def test_executors_take_their_classes_from_the_archive_where_there_is_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CLASS_ARCHIVE", archive := tmp_path / "a folder" / "classes.jsa")
    assert "SharedArchiveFile" not in session.submit_conf(settings)["spark.executor.extraJavaOptions"]
    archive.parent.mkdir()
    archive.touch()
    for conf in (session.submit_conf(settings), session.bronze_conf()):
        for process in ("driver", "executor"):
            assert f'-XX:SharedArchiveFile="{archive}" -Xshare:auto' in conf[f"spark.{process}.extraJavaOptions"]
