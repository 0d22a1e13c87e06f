"""Strings that look personal, and those that only resemble them."""

from __future__ import annotations

import sys

import pytest

from foreword.cleaning.personal import KINDS, count_personal, finder, masked
from foreword.errors import UserError
from foreword.types import Document

AWS = "AKIA" + "IOSFODNN7EXAMPLE"  # in two parts, so that no scanner takes it for a key


@pytest.fixture
def packages() -> None:
    for name in ("phonenumbers", "stdnum", "detect_secrets"):
        pytest.importorskip(name)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("text", "kind", "string"),
    [
        ("write to jane.doe+x@mail.example.org.", "e-mail address", "jane.doe+x@mail.example.org"),
        ("call +44 20 7946 0958 now", "telephone number", "+44 20 7946 0958"),
        ("paid with 4111 1111 1111 1111.", "payment card", "4111 1111 1111 1111"),
        ("card 5555-5555-5555-4444", "payment card", "5555-5555-5555-4444"),
        ("to GB82 WEST 1234 5698 7654 32", "bank account", "GB82 WEST 1234 5698 7654 32"),
        ("from 8.8.8.8 today", "IP address", "8.8.8.8"),
        ("from 2001:4860:4860::8888", "IP address", "2001:4860:4860::8888"),
        ("e-mail jose\u0301.ló@müller.de", "e-mail address", "jose\u0301.ló@müller.de"),
        ("联系foo@example.com谢谢", "e-mail address", "foo@example.com"),
        ("문의 foo@example.com으로", "e-mail address", "foo@example.com"),
        ("账户GB82 WEST 1234 5698 7654 32。", "bank account", "GB82 WEST 1234 5698 7654 32"),
        ("地址8.8.8.8是", "IP address", "8.8.8.8"),
        (f"key {AWS}", "key or password", AWS),
        ("-----BEGIN RSA PRIVATE KEY-----", "key or password", "BEGIN RSA PRIVATE KEY"),
        ("http://jo:hunter2x@host.example/", "key or password", "hunter2x"),
    ],
)
def test_personal_strings_are_found(text: str, kind: str, string: str) -> None:
    assert (kind, string) in list(finder()(text))


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    "text",
    [
        "In 1999 there were 12,345,678 people at 12:30:45.",
        "paid with 4111 1111 1111 1112",  # a wrong check digit
        "to GB82 WEST 1234 5698 7654 33",
        "from 192.168.0.1, 127.0.0.1 and 999.1.1.1, version 1.2.3",
        "std::vector and a::b @ home, see section 3.14.15",
        "0000 0000 0000 0000 and 4444 4444 4444 4444",
    ],
)
def test_what_only_resembles_them_is_not(text: str) -> None:
    assert list(finder()(text)) == []


@pytest.mark.usefixtures("packages")
def test_numbers_of_a_country_need_no_code_there() -> None:
    text = "call (650) 253-0000"
    assert list(finder()(text)) == []
    assert list(finder("US")(text)) == [("telephone number", "(650) 253-0000")]
    with pytest.raises(UserError, match="--country XX: expected two letters of a country"):
        finder("XX")


@pytest.mark.usefixtures("packages")
def test_strings_and_documents_are_counted_with_a_masked_example() -> None:
    texts = ["nothing", "a@b.org and c@d.org", "e@f.org, 8.8.8.8"]
    found = count_personal(Document(text, f"t:{n}") for n, text in enumerate(texts, 1))
    by_kind = {count.kind: count for count in found.counts}
    assert list(by_kind) == list(KINDS)
    mail = by_kind["e-mail address"]
    assert (mail.found, mail.documents, mail.first, mail.example) == (3, 2, "t:2", "a@*.***")
    assert by_kind["IP address"].found == 1 and by_kind["payment card"].first == ""
    assert (found.documents, found.bytes) == (3, sum(map(len, texts)))
    assert masked("किताब@x.in") == "कि***@*.**"
    part = count_personal((Document(text, "") for text in texts), most_bytes=10)
    assert part.documents == 2


def test_examples_show_two_characters() -> None:
    assert masked("jane.doe@mail.org") == "ja**.***@****.***"
    assert masked("+44 20 7946") == "+4* ** ****"


def test_missing_packages_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(UserError, match=r"pip install 'foreword\[privacy\]'") as error:
        finder()
    assert "\n" not in str(error.value)
