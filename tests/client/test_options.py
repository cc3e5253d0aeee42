"""Addresses as people write them, and options that travel."""

import pickle

import pytest

from barnabas.client.options import Address, ClientOptions, parse_address, parse_bootstrap_servers


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1234", Address("localhost", 1234)),
        ("localhost", Address("localhost", 9092)),
        ("[::1]:9093", Address("::1", 9093)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", [":9092", "host:", "host:port", "host:0", "host:65536", "[::1", "[::1]x", "a:b:c", "host:²"]
)
def test_a_bad_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT") as refused:
        parse_address(text)
    assert repr(text) in str(refused.value)


def test_several_servers_have_commas_between() -> None:
    assert parse_bootstrap_servers(" a:1, b ,") == [Address("a", 1), Address("b", 9092)]
    with pytest.raises(ValueError, match="there is none"):
        parse_bootstrap_servers(" , ")


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(Address("h", 1)), str(Address("::1", 2))] == ["h:1", "[::1]:2"]


def test_options_can_be_pickled() -> None:
    options = ClientOptions(client_id="spark", request_timeout_ms=5)
    assert pickle.loads(pickle.dumps(options)) == options
