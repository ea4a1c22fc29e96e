"""The bank's CSV files as messages: exact values, times that cannot be read, files that cannot be used."""

from pathlib import Path

import pytest

from include.producer import file_sources, plan_messages
from include.producer.records import cents
from spark_jobs.kafka.messages import number
from spark_jobs.runtime.errors import SettingsError

TRANSACTIONS_HEADER = "trans_id,account_id,type,operation,amount,balance,k_symbol,fulldatewithtime,customer_id"
CUSTOMERS_HEADER = (
    "customer_id,sex,fulldate,day,month,year,age,social,first,middle,last,phone,email,"
    "address_1,address_2,city,state,zipcode,district_id,date"
)
ACCOUNTS_HEADER = "account_id,district_id,frequency,parseddate,year,month,day,date"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "transactions", TRANSACTIONS_HEADER, "T00171812,A00000576,Credit,,900,7127.10,x,2013-01-01T08:23:33,C00000692")
    write(
        tmp_path,
        "customers",
        CUSTOMERS_HEADER,
        "C00000001,Female,1990-12-13,13,12,1990,29,926-93,Emma,Avaya,Smith,367,e@g.com,387 A Ave.,Unit 1,Salem,NM,47246,18,1990-12-13",
        'C00000002,Male,,,,,,926-93,Zoë,,"O""Neill, Jr",367,e@g.com,387 A Ave.,,York,NY,10040,1,',
    )
    write(tmp_path, "accounts", ACCOUNTS_HEADER, "A00000576,55,Monthly Issuance,2013-01-01,2013,1,1,2013-01-01")
    return tmp_path


def write(folder: Path, topic: str, *lines: str) -> None:
    (folder / f"{topic}.csv").write_bytes("".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape"))


def sent(folder: Path, only: str) -> list[str]:
    return [(message.value or b"").decode("utf-8", "surrogateescape") for message in plan_messages(file_sources(folder, [only]))]


def test_a_transaction_keeps_the_digits_of_its_amounts(folder: Path) -> None:
    assert sent(folder, "transactions") == [
        '{"transactionId":"T00171812","accountId":"A00000576","customerId":"C00000692","eventTime":1357028613000,'
        '"eventTimeFormatted":"2013-01-01 08:23:33.000","type":"Credit","operation":"","amount":900,"balance":7127.10}'
    ]


def test_customers_and_accounts_are_first_versions(folder: Path) -> None:
    assert sent(folder, "customers") == [
        '{"customerId":"C00000001","sex":"Female","social":"926-93","fullName":"Emma Avaya Smith","phone":"367","email":"e@g.com",'
        '"address1":"387 A Ave.","address2":"Unit 1","city":"Salem","state":"NM","zipcode":"47246","districtId":"18",'
        '"birthDate":"1990-12-13","updateTime":1356912000000}',
        '{"customerId":"C00000002","sex":"Male","social":"926-93","fullName":"Zoë O\\"Neill, Jr","phone":"367","email":"e@g.com",'
        '"address1":"387 A Ave.","address2":"","city":"York","state":"NY","zipcode":"10040","districtId":"1",'
        '"birthDate":null,"updateTime":1356912000000}',
    ]
    assert sent(folder, "accounts") == [
        '{"accountId":"A00000576","districtId":55,"frequency":"Monthly Issuance","creationDate":"2013-01-01","updateTime":1356912000000}'
    ]


def test_the_order_is_customers_accounts_transactions_and_keys_are_ids(folder: Path) -> None:
    messages = list(plan_messages(file_sources(folder)))
    assert [(message.topic, message.key) for message in messages] == [
        ("customers", b"C00000001"),
        ("customers", b"C00000002"),
        ("accounts", b"A00000576"),
        ("transactions", b"T00171812"),
    ]


def test_a_time_that_cannot_be_read_is_null_and_its_text_is_kept(folder: Path) -> None:
    write(folder, "transactions", TRANSACTIONS_HEADER, "T00171812,A00000576,Credit,,900,900,,2013-02-01T15:60:16,C00000692")
    assert '"eventTime":null,"eventTimeFormatted":"2013-02-01T15:60:16"' in sent(folder, "transactions")[0]


def test_what_is_no_number_goes_out_for_the_pipeline_to_judge(folder: Path) -> None:
    write(folder, "transactions", TRANSACTIONS_HEADER, "T00171812,A00000576,Refund,,abc,,,2013-02-01T15:00:16,C00000692")
    assert sent(folder, "transactions")[0].endswith('"type":"Refund","operation":"","amount":"abc","balance":null}')


def test_bytes_that_are_no_utf8_stay_as_they_are(folder: Path) -> None:
    write(folder, "transactions", TRANSACTIONS_HEADER, "T00171812,A00000576,Credit,\udcff\udcfe,1,1,,2013-02-01T15:00:16,C00000692")
    values = [message.value or b"" for message in plan_messages(file_sources(folder, ["transactions"]))]
    assert b'"operation":"\xff\xfe"' in values[0]


def test_short_rows_and_blank_lines(folder: Path) -> None:
    write(folder, "accounts", ACCOUNTS_HEADER, "A00000576,55", "", "A00000577,1,Weekly Issuance,2013-01-02,,,,")
    lines = sent(folder, "accounts")
    assert len(lines) == 2
    assert lines[0] == '{"accountId":"A00000576","districtId":55,"frequency":"","creationDate":null,"updateTime":1356912000000}'


def test_all_that_is_wrong_with_a_folder_is_said_at_once(folder: Path) -> None:
    write(folder, "transactions", TRANSACTIONS_HEADER.replace("amount,balance,", ""))
    (folder / "accounts.csv").unlink()
    (folder / "customers.csv").write_bytes(b"")
    with pytest.raises(SettingsError) as error:
        file_sources(folder)
    message = str(error.value)
    assert "accounts.csv is not there" in message
    assert "transactions.csv lacks the columns amount, balance" in message
    assert "customers.csv lacks the columns customer_id, sex" in message
    assert "\n" not in message
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("900", "900"),
        ("-3724.70", "-3724.70"),
        ("99999999999999.99", "99999999999999.99"),
        ("12.345", "12.345"),
        ("1e2", "1e2"),
        ("007.50", "7.50"),
        ("+5", "5"),
        (".5", "0.5"),
        ("NaN", '"NaN"'),
        ("Infinity", '"Infinity"'),
        ("1,5", '"1,5"'),
        ("٣", '"٣"'),
        ("1\n", '"1\\n"'),
        ("", "null"),
    ],
)
def test_numbers_are_never_rounded(text: str, expected: str) -> None:
    assert number(text) == expected


@pytest.mark.parametrize(("amount", "text"), [(90000, "900"), (1460, "14.6"), (-5, "-0.05"), (0, "0"), (101, "1.01"), (-372470, "-3724.7")])
def test_cents(amount: int, text: str) -> None:
    assert cents(amount) == text
