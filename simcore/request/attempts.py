"""Collects values that are computed one by one, so that all errors are reported together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simcore.base.errors import InvalidConfig, UsageError


class Attempts:
    """The values computed so far, and a sentence for each that could not be computed.

    ``defaults``: options that the user did not set, as "option value", in the order of look-up.
    """

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        self.defaults: list[str] = []
        self._made: dict[str, Any] = {}

    def make(self, key: str, how: Callable[[], object]) -> None:
        """Store what ``how`` returns; for a UsageError or InvalidConfig, store its sentences."""
        try:
            self._made[key] = how()
        except InvalidConfig as err:
            self.problems.extend(err.violations)
        except UsageError as err:
            self.problems.append(str(err))

    def chosen(self, flag: str, value: Any, fallback: Any) -> Any:
        """``value``, or ``fallback`` where it is None; the fallback is recorded in ``defaults``."""
        if value is not None:
            return value
        self.defaults.append(f"{flag} {fallback}")
        return fallback

    def stop(self) -> None:
        """Raises InvalidConfig with every problem, each once, if there are any."""
        if self.problems:
            raise InvalidConfig(list(dict.fromkeys(self.problems)))

    def __contains__(self, key: str) -> bool:
        return key in self._made

    def __getitem__(self, key: str) -> Any:
        return self._made[key]

    def get(self, key: str, fallback: Any = None) -> Any:
        """The value stored under ``key``, or ``fallback``."""
        return self._made.get(key, fallback)
