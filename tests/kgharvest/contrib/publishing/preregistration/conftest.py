"""Fixtures of studies whose harvests take no time."""

from tests.evaluation.studies.conftest import fake_harvests, run, study  # noqa: F401 fixtures
