"""What is done to the broker while it is loaded: killed, restarted and paused, at moments that the seed chooses."""

import os
import random
import signal
import threading

from barnabas.clock import SystemClock
from barnabas.embedded import Broker, BrokerFailedError
from checker.history import Fault, History, Trouble

NAME = "nemesis"
CALM_S = (0.3, 4.0)
DOWN_S = (0.0, 1.0)
# A long pause outlasts sessions.
PAUSE_S = (0.2, 4.0)
START_S = 0.8
ACTIONS = ("kill",) * 5 + ("kill while starting",) * 2 + ("restart",) * 2 + ("pause",) * 3


class Nemesis:
    """Does harm to one broker."""

    def __init__(self, broker: Broker, history: History, seed: int) -> None:
        self._broker = broker
        self._history = history
        self._chance = random.Random(f"{seed} {NAME}")
        self._clock = SystemClock()

    def run(self, until: float) -> None:
        """Do one thing after the other until some time of the history; the broker is there in the end."""
        while True:
            calm_s = self._chance.uniform(*CALM_S)
            self._clock.sleep(max(0.0, min(calm_s, until - self._history.now())))
            if self._history.now() >= until:
                return
            self.do(self._chance.choice(ACTIONS))

    def do(self, action: str) -> None:
        """Do one thing."""
        self._look_into_log()
        match action:
            case "kill" | "kill while starting":
                self._broker.kill()
                self._clock.sleep(self._chance.uniform(*DOWN_S))
                self._start(is_killed=action != "kill")
            case "restart":
                self._broker.stop()
                self._start(is_killed=False)
            case "pause":
                seconds = self._chance.uniform(*PAUSE_S)
                os.kill(self._broker.pid, signal.SIGSTOP)
                self._clock.sleep(seconds)
                os.kill(self._broker.pid, signal.SIGCONT)
                action = f"pause, {seconds:.1f} s"
        self._history.note(NAME, Fault(action=action))

    def stop(self) -> None:
        """Stop the broker for good, in order."""
        self._look_into_log()
        self._broker.stop()

    def _start(self, is_killed: bool) -> None:
        if is_killed:
            killer = threading.Timer(self._chance.uniform(0, START_S), self._broker.kill)
            killer.start()
            try:
                self._broker.start()
            except BrokerFailedError:
                pass  # It was killed before it was ready.
            killer.join()
        try:
            self._broker.start()
        except BrokerFailedError as error:
            self._history.note(NAME, Trouble(what=f"the broker does not start again: {error}"))
            raise

    def _look_into_log(self) -> None:
        """A broker that shows a stack had an accident, even if nobody else noticed."""
        log = self._broker.log
        if "Traceback" in log:
            self._history.note(
                NAME, Trouble(what=f"the broker had an accident: {log[log.index('Traceback') :][:3000]}")
            )
        elif not self._broker.is_running:
            self._history.note(NAME, Trouble(what=f"the broker is gone: {log[-3000:]}"))
