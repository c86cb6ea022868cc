"""Values made one by one, with everything that is wrong told at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simcore.base.errors import InvalidConfig, UsageError


class Attempts:
    """What could be made of a question so far, and the sentences about what could not.

    ``defaults``: the options that nobody gave, each with what was taken, in the order of asking.
    """

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        self.defaults: list[str] = []
        self._made: dict[str, Any] = {}

    def make(self, key: str, how: Callable[[], object]) -> None:
        """Keep what ``how`` returns; of a UsageError or InvalidConfig its sentences."""
        try:
            self._made[key] = how()
        except InvalidConfig as err:
            self.problems.extend(err.violations)
        except UsageError as err:
            self.problems.append(str(err))

    def chosen(self, flag: str, value: Any, fallback: Any) -> Any:
        """``value``, or the fallback where there is none, which is told."""
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
        """What was made under a key, or the fallback."""
        return self._made.get(key, fallback)
