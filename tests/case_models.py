"""The model of a measured row, as its command names it."""

from simcore.validate.case import Case
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model


def record_of(case: Case) -> ModelRecord:
    """The record of the row's model with the settings of its command."""
    record = resolve_model(case.model, settings=case.options.get("settings"))
    assert isinstance(record, ModelRecord)
    return record
