"""The table of options: the modules of this package fill it, every interface reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simcore.base.errors import UnknownName
from simcore.strategy.options.option import GROUPS, HEADINGS, Option


class OptionTable:
    """Options by name, iterated heading by heading and in order of registration.

    ``version`` counts the changes of the table: use it as the key of caches of derived values.
    ``when_changed`` registers a callback, for derived values that cannot check the version
    whenever they are read (signatures of functions).
    """

    def __init__(self) -> None:
        self.version = 0
        self._options: dict[str, Option] = {}
        self._callbacks: list[Callable[[], None]] = []

    def register(self, *options: Option) -> None:
        """Add options. Raises ValueError for a name that is taken, an unknown heading or group."""
        for option in options:
            if option.name in self._options:
                raise ValueError(f"option {option.name!r} is registered twice")
            if option.heading not in HEADINGS:
                raise ValueError(f"option {option.name!r}: no heading {option.heading!r}")
            if option.control is not None and option.control.group not in GROUPS:
                raise ValueError(f"option {option.name!r}: no group {option.control.group!r}")
            self._options[option.name] = option
        self._change()

    @contextmanager
    def registered(self, *options: Option) -> Iterator[None]:
        """Add options for the duration of a ``with`` block."""
        self.register(*options)
        try:
            yield
        finally:
            for option in options:
                del self._options[option.name]
            self._change()

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` now and after every change of the table."""
        self._callbacks.append(callback)
        callback()

    def _change(self) -> None:
        self.version += 1
        for callback in self._callbacks:
            callback()

    def __getitem__(self, name: str) -> Option:
        """The option of that name. Raises UnknownName."""
        try:
            return self._options[name]
        except KeyError:
            raise UnknownName("option", name, self._options) from None

    def get(self, name: str) -> Option | None:
        """The option of that name, or None."""
        return self._options.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._options

    def __iter__(self) -> Iterator[Option]:
        """All entries of the table, heading by heading."""
        return iter(sorted(self._options.values(), key=lambda o: HEADINGS.index(o.heading)))

    def __len__(self) -> int:
        return len(self._options)

    def options(self) -> dict[str, Option]:
        """The options of a job by their Python keywords, heading by heading."""
        return {o.name: o for o in self if o.part == "option"}

    def typed(self) -> dict[str, Option]:
        """The command line's options of a job, except its model, its GPUs and its length."""
        return {o.name: o for o in self if o.part in ("option", "shorthand") and o.on_command_line}

    def in_launch(self) -> tuple[str, ...]:
        """Names of the options that a launch file of another program may set."""
        return tuple(o.name for o in self if o.in_launch)

    def launch_keys(self, dialect: str) -> dict[str, str]:
        """Keys of a dialect of launch files that set an option directly, to that option's name."""
        found: dict[str, str] = {}
        for option in self:
            for key in option.launch_keys.get(dialect, "").split():
                found[key] = option.name
        return found


OPTIONS = OptionTable()
