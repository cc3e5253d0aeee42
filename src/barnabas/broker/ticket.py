"""Ticket: the place of an answer that may be there at once, later, or never.

A handler makes one, gives it to whoever will answer, and returns `outcome()`: the answer if it is there already, which
saves the way through the loop, or Outcome.LATER.

Rule 1: a ticket is answered once. What comes after that, or after the client went away, is dropped.
"""

from typing import Any

from barnabas.broker.refusal import refusal_of
from barnabas.broker.request_channel import Outcome, Request
from barnabas.wire.errors import ApiError


class Ticket:
    """The answer that a request waits for."""

    __slots__ = ("_answer", "_body", "_is_later", "request")

    def __init__(self, request: Request, body: Any) -> None:
        self.request = request
        self._body = body
        self._answer: Any = None
        self._is_later = False

    def answer(self, message: Any) -> None:
        """Answer the request."""
        if not self._is_later:
            self._answer = message
        elif not self.request.is_answered:
            self.request.respond(message)

    def refuse(self, error: ApiError) -> None:
        """Answer the request with an error of all that it asked for."""
        self.request.count_error(error.code)
        refusal = refusal_of(self.request.api, self.request.version, self._body, error)
        self.answer(Outcome.CLOSE if refusal is None else refusal)

    def outcome(self) -> Any:
        """Return what the handler is to return."""
        if self._answer is not None:
            return self._answer
        self._is_later = True
        return Outcome.LATER
