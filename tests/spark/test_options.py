"""How options are read: by one table for each format, whatever the case of their names."""

import pytest

from barnabas.spark.errors import OptionError
from barnabas.spark.options import BOOLEAN, GivenOptions, OptionRow

ROWS = (
    OptionRow("topics", "", "topics", "What to read."),
    OptionRow("pattern", "", "a regular expression", "What to read."),
    OptionRow("isFast", "true", BOOLEAN, "Whether it is fast."),
    OptionRow("kafka.some.bytes", "10", "a number", "How many."),
)
REFUSED = {"kafka.acks": "is not for this"}


def given(**options: str) -> GivenOptions:
    return GivenOptions({name.replace("_", "."): value for name, value in options.items()}, ROWS, REFUSED)


def test_what_is_given_goes_before_the_default() -> None:
    options = given(TOPICS=" b,a,,b ", isfast="FALSE", kafka_some_bytes=" 7 ", kafka_linger_ms="5", path="x")
    assert options.words("topics") == ("a", "b")
    assert not options.boolean("isFast")
    assert options.number("kafka.some.bytes") == options.optional_number("kafka.some.bytes") == 7
    assert (options.pattern("pattern"), options.only_one(("topics", "pattern"))) == ("", "topics")


def test_what_is_not_given_is_the_default() -> None:
    options = given()
    assert (options.words("topics"), options.given("topics"), options.is_given("topics")) == ((), None, False)
    assert (options.boolean("isFast"), options.number("kafka.some.bytes")) == (True, 10)
    assert (options.optional_number("kafka.some.bytes"), options.only_one(("topics", "pattern"))) == (None, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topik": "a"}, "option 'topik' is not known; is 'topics' meant?"),
        ({"kafka_some_bites": "1"}, "option 'kafka.some.bites' is not known; is 'kafka.some.bytes' meant?"),
        ({"kafka_acks": "1"}, "option 'kafka.acks' is not for this"),
        ({"isFast": "yes"}, "option 'isFast' is true or false, but 'yes' was given"),
        ({"kafka_some_bytes": "9" * 5000}, "option 'kafka.some.bytes' is a number from 1 on, but '9"),
        ({"kafka_some_bytes": "-1"}, "option 'kafka.some.bytes' is a number from 1 on, but '-1' was given"),
        ({"topics": ","}, "option 'topics' names nothing: ',' was given"),
        ({"pattern": ""}, "option 'pattern' is an empty regular expression"),
        ({"pattern": "("}, "option 'pattern' is '(', which is no regular expression"),
        ({"pattern": "a", "topics": "b"}, "option 'pattern' says what to read, but so does 'topics'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        read = given(**options)
        read.only_one(("topics", "pattern"))
        read.words("topics"), read.pattern("pattern"), read.boolean("isFast"), read.number("kafka.some.bytes")
    assert str(raised.value).startswith(sentence)
