"""BusyPoll: keeps the loop awake for a moment while requests follow each other closely.

    turn ends --> the loop looks for more, again and again --> the next request is served at once
                                                           \\-> none for 100 us: the loop sleeps until the next

A client that waits for each answer before it asks again lets the loop fall asleep in between, and to be woken takes a
thread longer than to serve a small request: half of what such a client waits for. Being awake takes less CPU time than
falling asleep and being woken does, as long as the request comes.

Rule 1: only who was asked a moment ago stays awake; a broker that is idle, or asked now and then, sleeps.
Rule 2: who stayed awake in vain several times does not try again for a while.
"""

from collections.abc import Callable
from typing import Any

from barnabas.clock import Clock, SystemClock

CLOSE_SECONDS = 0.00025
"""Turns that end within this after the last one follow it closely; the time to be woken is part of it."""
AWAKE_SECONDS = 0.0001
IN_VAIN_MAX = 3
REST_TURNS = 256


class BusyPoll:
    """Decides whether the loop of a broker stays awake."""

    __slots__ = ("_call_soon", "_deadline", "_in_vain", "_is_awake", "_last_turn", "_now", "_rest")

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any], clock: Clock | None = None) -> None:
        """The time is that of the machine, whatever clock the broker goes by: it is about its processor."""
        self._call_soon = call_soon
        self._now = (clock or SystemClock()).monotonic_seconds
        self._is_awake = False
        self._deadline = 0.0
        self._last_turn = 0.0
        self._in_vain = 0
        self._rest = 0

    def turn_ended(self) -> None:
        """Note that a connection was served, and look for the next request if this one came soon after another."""
        if self._rest:
            self._rest -= 1
            return
        now = self._now()
        if self._is_awake:
            self._in_vain = 0
            self._deadline = now + AWAKE_SECONDS
        elif now - self._last_turn < CLOSE_SECONDS:
            self._is_awake = True
            self._deadline = now + AWAKE_SECONDS
            self._call_soon(self._look)
        self._last_turn = now

    def _look(self) -> None:
        """Come back in the next round of the loop, before which it looks for whatever came."""
        if self._now() < self._deadline:
            self._call_soon(self._look)
            return
        self._is_awake = False
        self._in_vain += 1
        if self._in_vain == IN_VAIN_MAX:
            self._in_vain = 0
            self._rest = REST_TURNS
