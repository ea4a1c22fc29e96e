"""Districts from a file: a whole new version, or nothing at all."""

from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.control import districts
from spark_jobs.lake.tables import DISTRICTS
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import read_settings
from tests.support.lake import rows_of, version

HEAD = "district_id,name,region\n"


def test_each_file_that_says_something_new_is_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    settings, file = read_settings({"LEDGER_HOME": str(tmp_path / "home")}), tmp_path / "districts.csv"
    caplog.set_level("INFO")
    told = []
    for text in ('1,Praha,Čechy\n2,"Brno, město",\n', '2,"Brno, město",\n1,Praha,Čechy\n', "\ufeff"):
        file.write_text((text if text == "\ufeff" else "") + HEAD + (text if text != "\ufeff" else "0,Praha 😀,\n"), encoding="utf-8")
        assert run.main(["districts", "--file", str(file)]) == 0
        told.append(caplog.records[-1].getMessage())
    assert told == [
        "control.districts: 2 districts, version 1",
        "control.districts: 2 districts, nothing new, still version 1",
        "control.districts: 1 districts, version 2",
    ]
    assert rows_of(settings, DISTRICTS) == [{"district_id": 0, "name": "Praha 😀", "region": None}]
    file.write_text(HEAD + "x,Praha,\n")
    assert run.main(["districts", "--file", str(file)]) == 2
    assert version(settings, DISTRICTS) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found the columns '', expected district_id,name,region"),
        ("id,name\n1,a\n", "found the columns 'id,name', expected district_id,name,region"),
        (HEAD, "found no district, expected one or more; nothing was written"),
        (HEAD + "1,a\n", "line 2: found 2 values, expected 3; nothing was written"),
        (HEAD + "\n", "line 2: found 0 values, expected 3"),
        (HEAD + "1,a,b\n1,c,d\n", "line 3: found district 1 twice, expected it once"),
        (HEAD + "-1,a,b\n", "line 2: district_id: found '-1', expected a whole number from 0 to 2147483647"),
        (HEAD + "01,a,b\n", "line 2: district_id: found '01'"),
        (HEAD + "2147483648,a,b\n", "district_id: found '2147483648'"),
        (HEAD + f"{'9' * 5000},a,b\n", f"district_id: found '{'9' * 20}'"),
        (HEAD + "\u0661,a,b\n", "district_id: found '\u0661'"),
        (HEAD + "1, ,b\n", "line 2: name: found no text, expected 1 to 2000 characters"),
        (HEAD + '1,"a\nb",c\n', "line 3: name: found U+000A at character 2"),
        (HEAD + "1,a,b\u202ec\n", "line 2: region: found U+202E at character 2"),
        (HEAD + '1,"a,b\n', "cannot be read (unexpected end of data), expected CSV in UTF-8"),
        (HEAD + "\n" * 9, "line 6: found 0 values, expected 3; and 4 more; nothing was written"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_as_a_whole(text: str, found: str, tmp_path: Path) -> None:
    file = tmp_path / "districts.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        districts.read_file(file)
    assert found in str(refused.value)


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"district_id,name,region\n1,\xe9,\n")
    for file in (tmp_path, tmp_path / "missing", tmp_path / "latin"):
        with pytest.raises(SettingsError, match=r"cannot be read \(.+\), expected CSV in UTF-8"):
            districts.read_file(file)
