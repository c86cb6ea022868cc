"""The table of options: filled by the files of this package, read by everything that shows one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simcore.base.errors import UnknownName
from simcore.strategy.options.option import GROUPS, HEADINGS, Option


class OptionTable:
    """Options by name, under their headings and in the order in which they were registered.

    ``version`` counts changes: what is derived from the table and kept is made again for another
    version. ``when_changed`` is for what cannot ask: signatures of functions.
    """

    def __init__(self) -> None:
        self.version = 0
        self._options: dict[str, Option] = {}
        self._told: list[Callable[[], None]] = []

    def register(self, *options: Option) -> None:
        """Add options; a name that there is already, or a heading that there is not, raises."""
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
        """Options that there are within a ``with`` block alone."""
        self.register(*options)
        try:
            yield
        finally:
            for option in options:
                del self._options[option.name]
            self._change()

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` now and after every change."""
        self._told.append(tell)
        tell()

    def _change(self) -> None:
        self.version += 1
        for tell in self._told:
            tell()

    def __getitem__(self, name: str) -> Option:
        """An option. Raises UnknownName."""
        try:
            return self._options[name]
        except KeyError:
            raise UnknownName("option", name, self._options) from None

    def get(self, name: str) -> Option | None:
        """An option, or None where there is none of the name."""
        return self._options.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._options

    def __iter__(self) -> Iterator[Option]:
        """Everything in the table, heading by heading."""
        return iter(sorted(self._options.values(), key=lambda o: HEADINGS.index(o.heading)))

    def __len__(self) -> int:
        return len(self._options)

    def options(self) -> dict[str, Option]:
        """The options of a job by their Python keywords, heading by heading."""
        return {o.name: o for o in self if o.part == "option"}

    def typed(self) -> dict[str, Option]:
        """What the command line has of a job besides its model and its GPUs."""
        return {o.name: o for o in self if o.part in ("option", "shorthand") and o.on_command_line}

    def in_launch(self) -> tuple[str, ...]:
        """Names of the options that a launch file of another program may state."""
        return tuple(o.name for o in self if o.in_launch)

    def launch_keys(self, dialect: str) -> dict[str, str]:
        """Keys of a dialect that mean an option without more ado, with the option's name."""
        found: dict[str, str] = {}
        for option in self:
            for key in option.launch_keys.get(dialect, "").split():
                found[key] = option.name
        return found


OPTIONS = OptionTable()
