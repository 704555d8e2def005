"""The settings of workers in tests: the embedded default with a slow harvest and short leases."""

from kgharvest.settings import *  # noqa: F403

JOB_RUNNERS = {"harvest": "tests.kgharvest.slow_runner.run"}
JOB_LEASE_S = 2
JOB_RING_AGAIN_S = 2
JOB_REAP_EVERY_S = 0.5
