"""Gathering: one answer that needs several changes of the metadata, each of which is done later.

gathering = Gathering(request, answer)
for topic in body.topics:
    controller.create_topic(..., gathering.expect(lambda result: ...))
return gathering.outcome()
"""

from collections.abc import Callable
from typing import Any

from barnabas.broker.request_channel import Outcome, Request


class Gathering:
    """Counts what is still to come, and answers when nothing is; `finish` makes another answer of what was gathered."""

    def __init__(self, request: Request, answer: Any, finish: Callable[[], Any] | None = None) -> None:
        self._request = request
        self._finish = finish or (lambda: answer)
        self._expected = 0
        self._is_later = False

    def expect(self, take: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what a change is to call when it is done; `take` puts its result into the answer."""
        self._expected += 1

        def done(result: Any) -> None:
            take(result)
            self._expected -= 1
            if self._expected == 0 and self._is_later:
                self._request.respond(self._finish())

        return done

    def outcome(self) -> Any:
        """Return the answer if everything is there already."""
        if self._expected == 0:
            return self._finish()
        self._is_later = True
        return Outcome.LATER
