"""The answer to a whole request that is refused: the error in every place where its API has one.

Most answers repeat the topics and partitions that were asked for, each with an error code. So the answer is made from
the request: a list of the answer whose items say errors is filled from the list of the request, fields of the same name
are copied, and every `error_code` is set. All other lists stay empty.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from barnabas.model import NO_OFFSET
from barnabas.wire.apis import Api
from barnabas.wire.errors import ApiError
from barnabas.wire.schema import WireField, wire_fields

# Fields that say the same under another name.
_ALIASES = {"partition_index": ("partition",), "topic_name": ("name",), "name": ("topic",)}

# What has no value when there is an error, and another default otherwise.
_OFFSETS = ("base_offset", "high_watermark", "low_watermark")

# What an item of the answer calls the one thing that an item of the request is: a name, a key or a number.
_ONLY_FIELDS = {str: ("name", "key", "group_id", "transactional_id"), int: ("partition_index",)}

# Requests whose lists are not those of their answers.
_ASKED: dict[str, Callable[[Any], list[Any]]] = {
    "FetchRequest": lambda body: body.topics,  # And not those that it forgets.
    "AlterReplicaLogDirsRequest": lambda body: [topic for directory in body.dirs for topic in directory.topics],
    "DescribeLogDirsRequest": lambda body: [],  # The answer has directories, which nobody asked for by name.
}


def refusal_of(api: Api, version: int, body: Any, error: ApiError) -> Any | None:
    """Return the answer that says `error` of everything that was asked for, or None when the API can not say so.

    Of a request that asks for nothing, or for topics without partitions, there is nothing to say, and the answer is an
    empty one.
    """
    answer = api.response()
    return answer if _fill(answer, body, error, version) or _asks_for_nothing(body) else None


@cache
def _says_errors(kind: type) -> bool:
    """Tell whether a structure has a place for an error, in itself or in its lists."""
    return any(
        field.name == "error_code" or (isinstance(field.item, type) and _says_errors(field.item))
        for field in wire_fields(kind)
    )


def _asked_items(asked: Any) -> list[Any]:
    """Return the first list of a request, or of a part of one, that has anything in it."""
    if type(asked).__name__ in _ASKED:
        return _ASKED[type(asked).__name__](asked)
    values = (getattr(asked, field.name) for field in fields(asked))
    return next((value for value in values if isinstance(value, list) and value), [])


def _asks_for_nothing(asked: Any) -> bool:
    """Tell whether a request, or a part of one, has lists and nothing in them, nor in the lists of what is in them."""
    if not is_dataclass(asked) or not any(isinstance(getattr(asked, field.name), list) for field in fields(asked)):
        return False
    return all(_asks_for_nothing(item) for item in _asked_items(asked))


def _fill(answer: Any, asked: Any, error: ApiError, version: int) -> bool:
    """Copy what was asked for into an answer, with the error; tell whether there was a place for it."""
    is_said = False
    kind: type = type(answer)
    for field in wire_fields(kind):
        if not field.versions.has(version):
            continue
        if field.name == "error_code":
            answer.error_code = int(error.code)
            is_said = True
        elif field.name == "error_message":
            answer.error_message = error.message
        elif field.kind == "records":
            setattr(answer, field.name, b"")  # Clients fail on null.
        elif field.name in _OFFSETS:
            setattr(answer, field.name, NO_OFFSET)
        elif field.kind == "array":
            if isinstance(field.item, type) and _says_errors(field.item):
                items = [_item(field.item, one, error, version) for one in _asked_items(asked)]
                setattr(answer, field.name, [item for item, _ in items])
                is_said = is_said or any(said for _, said in items)
        else:
            _copy(answer, asked, field, version)
    return is_said


def _copy(answer: Any, asked: Any, field: WireField, version: int) -> None:
    for name in (field.name, *_ALIASES.get(field.name, ())):
        value = getattr(asked, name, None)
        if value is not None or (hasattr(asked, name) and field.nullable.has(version)):
            setattr(answer, field.name, value)
            return


def _item(kind: type, asked: Any, error: ApiError, version: int) -> tuple[Any, bool]:
    item = kind()
    if type(asked) in _ONLY_FIELDS:
        names = {field.name for field in wire_fields(kind)}
        (name,) = names.intersection(_ONLY_FIELDS[type(asked)])
        setattr(item, name, asked)
        item.error_code = int(error.code)
        if "error_message" in names:
            item.error_message = error.message
        return item, True
    return item, _fill(item, asked, error, version)
