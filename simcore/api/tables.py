"""Measured tables: predicted and judged, or fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcore.api.calibrations import fitted
from simcore.api.files import paths_of
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.hardware.profile import load_profile

if TYPE_CHECKING:
    from simcore.validate.case import Case
    from simcore.validate.commands import Command
    from simcore.validate.table import Table


def validate(
    files: Sequence[Path | str] | Path | str,
    *,
    calibrated: bool = False,
    calibrate: int | Literal["one-gpu"] | None = None,
    draws: int | None = None,
    only: Mapping[str, str] | None = None,
    unnamed: bool = False,
    fill: bool = False,
    by: Sequence[str] = (),
    jobs: int = 1,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
) -> dict[str, Any]:
    """Predict the rows of measured tables; the contract of ``simcore validate --json``.

    ``calibrate``: fit on so many rows of each source and GPU (``one-gpu``: on all rows of one
    device) and judge the others alone; ``draws``: so many random choices of these rows instead of
    the most telling. ``only``: rows with these values of their columns. ``unnamed``: as if no
    row told its program, as ``simcore.validate.unnamed`` asks.

    ``calibrated``: every row is predicted by a fit of a few physical parameters that has not seen
    its configuration; the blind figures stand beside it under ``blind``. ``fill``: what nobody
    measured, under ``filled``. ``by``: columns of the tables to group errors by, ``gpu`` of any
    table. ``jobs``: processes that share the rows of large tables. ``bad_rows``: rows that cannot
    be are refused (DataError), or skipped and counted. ``allow_code``: a row whose model is Python
    code (``package.module:function``) runs it, and is skipped otherwise. Raises InvalidConfig for a
    column that none has.
    """
    from simcore.validate.calibrated import calibrate_and_judge
    from simcore.validate.fill import filled_rows
    from simcore.validate.judge import contradictions, judge

    tables = _tables(files, only, unnamed, bad_rows, allow_code=allow_code)
    _check_columns(by, [case for t in tables for case in t.cases])
    if calibrate is not None:
        from simcore.validate.few_rows_dict import validated

        return validated(tables, calibrate, draws, by, jobs)
    blind = judge(tables, jobs=jobs)
    profile = load_profile()
    suspects = {k: v for t in tables for k, v in contradictions(t.cases).items()}
    told = {
        "ignored_columns": {t.path.name: list(ignored) for t in tables if (ignored := _ignored(t))},
        "suspects": suspects,
    }
    out = {**blind.to_dict(by), **told}
    if calibrated:
        found = calibrate_and_judge(tables, jobs)
        out = {
            **found.verdict.to_dict(by),
            **told,
            "fit": [
                {
                    "parameter": p.name,
                    "value": found.fit.values[p.name],
                    "sd_log": found.fit.sd_log[p.name],
                    "prior_sd_log": p.prior_sd_log,
                }
                for p in found.fit.parameters
            ],
            "blind": blind.to_dict(by),
        }
    if fill:
        out["filled"] = filled_rows(tables, found.profile_for if calibrated else lambda _: profile)
    return out


def commands(
    files: Sequence[Path | str] | Path | str,
    *,
    only: Mapping[str, str] | None = None,
    unnamed: bool = False,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
) -> tuple[Command, ...]:
    """The command that predicts each row of measured tables, as ``simcore validate`` does.

    ``words`` of a command follow ``simcore``; ``line`` is it for a shell, with the row's id. A row
    that is no job has a ``reason`` instead. ``only``, ``unnamed`` and ``bad_rows`` as in
    ``validate``. Raises DataError, InvalidConfig.
    """
    from simcore.validate.commands import commands_of

    return commands_of(_tables(files, only, unnamed, bad_rows, allow_code=allow_code))


def _tables(
    files: Sequence[Path | str] | Path | str,
    only: Mapping[str, str] | None,
    unnamed: bool,
    bad_rows: Literal["refuse", "skip"],
    *,
    allow_code: bool,
) -> list[Table]:
    """The tables of files: the rows that were asked for, as they are to be predicted."""
    from simcore.validate.table import read_table

    tables = [read_table(f, on_bad=bad_rows, allow_code=allow_code) for f in paths_of(files)]
    if only:
        from simcore.validate.select import rows_with

        tables = [rows_with(t, only) for t in tables]
    if unnamed:
        from simcore.validate.unnamed import unnamed as without_program

        tables = [t.changed(without_program) for t in tables]
    return tables


def _ignored(table: Table) -> tuple[str, ...]:
    """Columns of a table in simcore's own format that nothing reads."""
    from simcore.validate.formats.project import FORMAT, ignored_columns

    if table.format != FORMAT.name:
        return ()
    return ignored_columns(dict.fromkeys(c for case in table.cases for c in case.columns))


def _check_columns(names: Sequence[str], cases: Sequence[Case]) -> None:
    known = {"gpu", *(column for case in cases for column in case.columns)}
    wrong = [str(UnknownName("column", n, sorted(known))) for n in names if n not in known]
    if cases and wrong:
        raise InvalidConfig(wrong)


def validate_ops(
    files: Sequence[Path | str] | Path | str,
    *,
    calibration: str | None = None,
    refit: Literal["shapes", "family"] | None = None,
    bad_rows: Literal["skip", "refuse"] = "skip",
    **said: str | None,
) -> dict[str, Any]:
    """Errors of the op models on measured op tables, by GPU, op and dtype, and by kind.

    Logs of nccl-tests are held against the collectives of a prediction (``validate_nccl``, which
    takes what ``said`` says of them).

    Figures of the GPU itself (own) and of others (blind) apart. ``refit``: judge figures fitted
    anew from these files, on shapes (``shapes``) and families (``family``) they have not seen.
    ``bad_rows``: rows that are no measurement are named and skipped, or refused (DataError).
    """
    from simcore.api.logs import all_nccl, validate_nccl

    paths = paths_of(files)
    if all_nccl(paths):
        if refit is not None:
            raise InvalidConfig(["--refit is for op tables, not for logs of nccl-tests"])
        return validate_nccl(paths, calibration=calibration, bad_rows=bad_rows, **said)
    _no_log(said)
    from simcore.validate.ops import judge_ops

    profile = load_profile(calibration)
    return judge_ops(paths, profile, refit=refit, on_bad=bad_rows)


def calibrate_from(
    file: Path | str,
    *,
    output: Path | str | None = None,
    name: str | None = None,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
    **said: str | None,
) -> dict[str, Any]:
    """Fit a few physical parameters to measured steps; write them as a calibration file.

    A log of nccl-tests gives the links of its cluster instead; ``said`` (gpus, node, network,
    collective) is what it leaves out.

    The result goes to ``output`` (a .yaml for ``predict(calibration=…)``) where one is given.
    ``bad_rows``: rows that cannot be are refused (DataError), or skipped and named.
    ``allow_code``: rows whose model is Python code run it, and are skipped otherwise.
    Raises InvalidConfig where no row can be fitted.
    """
    target = Path(output) if output is not None else None
    if target is not None and target.suffix not in (".yaml", ".yml"):
        raise InvalidConfig([f"a calibration is a .yaml file, not {target.name!r}"])
    if target is not None and not target.parent.is_dir():
        raise InvalidConfig([f"no such folder: {str(target.parent)!r}"])
    if not isinstance(file, str | Path):
        raise UsageError(f"a calibration is fitted to one file, not to {file!r:.60}")
    path = Path(file)
    chosen = name or (target.stem if target is not None else path.name.partition(".")[0])
    from simcore.api.logs import all_nccl, calibrate_nccl, refuse_trace

    refuse_trace(path)
    if all_nccl([path]):
        from simcore.calibrate.nccl_groups import Said

        return calibrate_nccl(
            path, output=target, name=chosen, said=Said(**said), bad_rows=bad_rows
        )
    _no_log(said)
    from simcore.validate.save import calibration_of, identified, write_calibration
    from simcore.validate.table import read_table

    table = read_table(path, on_bad=bad_rows, allow_code=allow_code)
    record, found = calibration_of([table], chosen)
    if target is not None:
        write_calibration(target, record)
    return fitted(
        record,
        identified,
        target,
        suspects=found.suspects,
        skipped=dict(found.verdict.skipped),
        unstated=[p.link for p in found.fit.parameters if p.prior_mean_log],
        ignored_columns=list(_ignored(table)),
    )


def _no_log(said: Mapping[str, str | None]) -> None:
    given = [f"--{k}" for k, v in said.items() if v is not None]
    if given:
        raise InvalidConfig([f"{', '.join(given)}: for logs of nccl-tests, which this is not"])
