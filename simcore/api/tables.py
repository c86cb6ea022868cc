"""Functions on measured tables: errors of predictions, and fits of calibrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcore.api.logs import all_nccl, calibrate_nccl, fitted, paths_of, refuse_trace, validate_nccl
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.lookup import one_question
from simcore.hardware.profile import load_profile
from simcore.validate.processes import shared

if TYPE_CHECKING:
    from simcore.validate.case import Case
    from simcore.validate.table import Command, Table


@shared()
def validate(
    files: Sequence[Path | str] | Path | str,
    *,
    calibrated: bool = False,
    calibrate: int | Literal["one-gpu"] | None = None,
    draws: int | None = None,
    only: Mapping[str, str] | None = None,
    unnamed: bool = False,
    by_program: bool = False,
    fill: bool = False,
    by: Sequence[str] = (),
    jobs: int = 1,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
    calibration: str | Path | None = None,
) -> dict[str, Any]:
    """Errors of predictions on the rows of measured tables, as ``simcore validate --json`` prints.

    files       tables, as paths
    calibrated  predict every row with a fit of a few physical parameters to the rows of other
                configurations; the figures without that fit are under ``blind``
    calibrate   fit on this many rows of each source and GPU (``one-gpu``: on all rows of one
                device) and judge only the other rows
    draws       with ``calibrate``: choose the rows at random, this many times, instead of the most
                informative ones
    only        judge only rows with these values, by column
    unnamed     remove the training program from every row (``simcore.validate.unnamed``)
    by_program  leave of a row's program its name and release alone
    fill        add predictions of values that nobody measured, under ``filled``
    by          columns by which to group the errors; ``gpu`` exists for every table; without it
                ``bound`` (what binds the step) where every row has that column
    jobs        processes that share the rows of large tables
    bad_rows    whether invalid rows are refused (DataError), or skipped and counted
    allow_code  run the Python code of rows whose model is ``package.module:function``; otherwise
                these rows are skipped
    calibration the name or file of a calibration with which every row is predicted

    Raises InvalidConfig for a column that no table has.
    """
    from simcore.validate.calibrated import calibrate_and_judge
    from simcore.validate.fill import filled_rows
    from simcore.validate.judge import contradictions, judge

    tables = _tables(
        files, only, bad_rows, unnamed=unnamed, by_program=by_program, allow_code=allow_code,
        jobs=jobs,
    )  # fmt: skip
    cases = [case for t in tables for case in t.cases]
    _check_columns(by, cases)
    if not by and cases and all(case.cell("bound") for case in cases):
        by = ("bound",)
    if calibrate is not None:
        from simcore.validate.few_rows import validated

        return validated(tables, calibrate, draws, by, jobs)
    if calibration is not None and calibrated:
        raise InvalidConfig(["--calibrated fits to the rows: drop --calibration or --calibrated"])
    # Without a calibration each process has the shipped profile, and figures looked up in it.
    profile = None if calibration is None else load_profile(calibration)
    own = None if profile is None else lambda _: profile
    mode = "blind" if profile is None else f"calibration {profile.name}"
    blind = judge(tables, mode=mode, profile_for=own, jobs=jobs)
    suspects = {k: v for t in tables for k, v in contradictions(t.cases).items()}
    notices = {
        "ignored_columns": {t.path.name: list(ignored) for t in tables if (ignored := _ignored(t))},
        "suspects": suspects,
    }
    out = {**blind.to_dict(by), **notices}
    if calibrated:
        refitted = calibrate_and_judge(tables, jobs)
        out = {
            **refitted.verdict.to_dict(by),
            **notices,
            "fit": [
                {
                    "parameter": p.name,
                    "value": refitted.fit.values[p.name],
                    "sd_log": refitted.fit.sd_log[p.name],
                    "prior_sd_log": p.prior_sd_log,
                }
                for p in refitted.fit.parameters
            ],
            "blind": blind.to_dict(by),
        }
    if fill:
        profile_for = refitted.profile_for if calibrated else lambda _: load_profile(calibration)
        out["filled"] = filled_rows(tables, profile_for)
    return out


def commands(
    files: Sequence[Path | str] | Path | str,
    *,
    only: Mapping[str, str] | None = None,
    unnamed: bool = False,
    by_program: bool = False,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    allow_code: bool = False,
) -> tuple[Command, ...]:
    """For each row of measured tables, the command whose prediction ``simcore validate`` judges.

    ``words`` of a command are its arguments after ``simcore``; ``line`` is the whole command for a
    shell, with the row's id. A row that is not a job has a ``reason`` instead. ``only``,
    ``unnamed``, ``by_program`` and ``bad_rows``: as in ``validate``. Raises DataError and
    InvalidConfig.
    """
    from simcore.validate.table import commands_of

    return commands_of(
        _tables(
            files, only, bad_rows, unnamed=unnamed, by_program=by_program, allow_code=allow_code
        )
    )


@one_question()
def _tables(
    files: Sequence[Path | str] | Path | str,
    only: Mapping[str, str] | None,
    bad_rows: Literal["refuse", "skip"],
    *,
    unnamed: bool,
    by_program: bool,
    allow_code: bool,
    jobs: int = 1,
) -> list[Table]:
    """The tables in the files, with the selected rows, prepared for prediction."""
    from simcore.validate.table import read_table

    selected = dict(only or {})
    tables = [
        read_table(file, on_bad=bad_rows, allow_code=allow_code, only=selected, jobs=jobs)
        for file in paths_of(files)
    ]
    if only:
        from simcore.validate.table import rows_with

        tables = [rows_with(t, only) for t in tables]
    if unnamed or by_program:
        from simcore.validate import unnamed as known

        tables = [t.changed(known.unnamed if unnamed else known.by_program) for t in tables]
    return tables


def _ignored(table: Table) -> tuple[str, ...]:
    """Columns of a table in simcore's own format that no reader uses."""
    from simcore.validate.formats.project import FORMAT, ignored_columns

    if table.format != FORMAT.name:
        return ()
    return ignored_columns(dict.fromkeys(c for case in table.cases for c in case.columns))


def _check_columns(names: Sequence[str], cases: Sequence[Case]) -> None:
    if not names or not cases:
        return
    known = {"gpu", *(column for case in cases for column in case.columns)}
    wrong = [str(UnknownName("column", n, sorted(known))) for n in names if n not in known]
    if wrong:
        raise InvalidConfig(wrong)


def validate_ops(
    files: Sequence[Path | str] | Path | str,
    *,
    calibration: str | None = None,
    refit: Literal["shapes", "family"] | None = None,
    bad_rows: Literal["skip", "refuse"] = "skip",
    **of_log: str | None,
) -> dict[str, Any]:
    """Errors of the op models on measured op tables, by GPU, op and dtype, and by kind of op.

    Figures fitted to the same GPU (own) and figures from other GPUs (blind) are judged separately.
    ``refit``: fit new figures to these files and judge them on shapes (``shapes``) or op families
    (``family``) that were left out of the fit. ``bad_rows``: whether invalid rows are named and
    skipped, or refused (DataError).

    Logs of nccl-tests are compared with the predicted collectives instead (``validate_nccl``,
    which takes ``of_log``: gpus, node, network, collective).
    """
    paths = paths_of(files)
    if all_nccl(paths):
        if refit is not None:
            raise InvalidConfig(["--refit is for op tables, not for logs of nccl-tests"])
        return validate_nccl(paths, calibration=calibration, bad_rows=bad_rows, **of_log)
    _only_of_logs(of_log)
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
    **of_log: str | None,
) -> dict[str, Any]:
    """Fit a few physical parameters to measured steps and write them as a calibration file.

    For a log of nccl-tests, the links of its cluster are fitted instead; ``of_log`` (gpus, node,
    network, collective) states what the log does not contain.

    ``output``: a .yaml file to write, for ``predict(calibration=...)``; None: no file is written.
    ``bad_rows``: whether invalid rows are refused (DataError), or skipped and named.
    ``allow_code``: run the Python code of rows whose model is code; otherwise they are skipped.
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
    refuse_trace(path)
    if all_nccl([path]):
        from simcore.calibrate.nccl.groups import Stated

        return calibrate_nccl(
            path, output=target, name=chosen, stated=Stated(**of_log), bad_rows=bad_rows
        )
    _only_of_logs(of_log)
    from simcore.validate.calibrated import calibration_of, identified, write_calibration
    from simcore.validate.table import read_table

    table = read_table(path, on_bad=bad_rows, allow_code=allow_code)
    record, refitted = calibration_of([table], chosen)
    if target is not None:
        write_calibration(target, record)
    return fitted(
        record,
        identified,
        target,
        suspects=refitted.suspects,
        skipped=dict(refitted.verdict.skipped),
        unstated=[p.link for p in refitted.fit.parameters if p.prior_mean_log],
        ignored_columns=list(_ignored(table)),
    )


def _only_of_logs(of_log: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig for words about a log of nccl-tests where there is none."""
    given = [f"--{k}" for k, v in of_log.items() if v is not None]
    if given:
        raise InvalidConfig([f"{', '.join(given)}: only for logs of nccl-tests, which this is not"])
