"""Options as texts: read by type, refused with a sentence that begins with their name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipeline.broker_access import Access
from pipeline.options import OptionError, Options


def refusal(options: dict[str, str], read: str, *arguments: object, **named: object) -> str:
    with pytest.raises(OptionError) as raised:
        getattr(Options(options), read)(*arguments, **named)
    return str(raised.value)


def test_names_are_case_insensitive_and_values_are_stripped() -> None:
    options = Options({"MINpartitions": " 4 ", "failondataloss": "FALSE", "topic": "  "})

    assert options.number("minPartitions") == 4
    assert options.flag("failOnDataLoss", True) is False
    assert options.text("topic", "none") == "none"
    assert "TOPIC" in options


def test_an_option_of_no_meaning_is_refused_and_the_nearest_is_named() -> None:
    told = refusal({"startingOffset": "earliest"}, "refuse_others", ["startingOffsets", "assign"])

    assert told == "startingOffset: there is no such option; is startingOffsets meant?"


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", "99999999999999999999", "٣"])
def test_a_number_out_of_bounds_is_refused_by_name(text: str) -> None:
    options = Options({"minPartitions": text})
    if not text:
        assert options.number("minPartitions") is None
        return
    assert refusal({"minPartitions": text}, "number", "minPartitions").startswith("minPartitions: ")


def test_a_span_is_a_duration_or_milliseconds() -> None:
    options = Options({"a": "15m", "b": "250", "c": "1h30m"})

    assert options.span_s("a", 0) == 900
    assert options.span_s("b", 0) == 0.25
    assert options.span_s("c", 0) == 5400
    assert options.span_s("d", 7) == 7
    assert refusal({"a": "soon"}, "span_s", "a", 0).startswith("a: ")


def test_access_reads_files_on_the_driver_and_shows_no_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k1.secret-of-k1\n")
    options = Options({"servers": "one:8080,https://two/", "apiKeyFile": str(tmp_path / "key")})

    access = options.access()

    assert access.servers == ("http://one:8080", "https://two")
    assert access.api_key == "k1.secret-of-k1"
    assert "secret" not in repr(access)
    assert pickle.loads(pickle.dumps(access)) == access


def test_what_is_not_given_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOQUEUE_SERVER", "http://three:1")
    monkeypatch.setenv("GOQUEUE_API_KEY", "k2.other")

    access = Options({}).access()

    assert access.servers == ("http://three:1",)
    assert access.api_key == "k2.other"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"servers": "ftp://x"}, "servers"),
        ({"servers": " , "}, "servers"),
        ({"apiKey": "a b"}, "apiKey"),
        ({"apiKey": "a", "apiKeyFile": "b"}, "apiKeyFile"),
        ({"apiKeyFile": "/nowhere/at/all"}, "apiKeyFile"),
        ({"caFile": "/nowhere/at/all"}, "caFile"),
        ({"requestTimeout": "0"}, "requestTimeout"),
    ],
)
def test_access_that_can_not_work_is_refused_by_the_options_name(
    options: dict[str, str], name: str
) -> None:
    assert refusal(options, "access").startswith(f"{name}: ")


def test_a_file_that_holds_no_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none here")

    assert refusal({"caFile": str(tmp_path / "ca.pem")}, "access").startswith("caFile: ")


def test_a_key_for_https_is_not_sent_in_plain_text_to_an_advertised_address() -> None:
    secure, plain = Access(("https://a",)), Access(("http://a",))

    assert secure.takes("https://b") and not secure.takes("http://b")
    assert plain.takes("http://b") and plain.takes("https://b")
