"""Worker settings in tests: embedded defaults, short leases, and, unless TEST_REAL_LM is set, a slow fake harvest."""

import os

from kgharvest.settings import *  # noqa: F403

if not os.environ.get("TEST_REAL_LM"):
    JOB_RUNNERS |= {"harvest": "tests.kgharvest.jobs.slow_runner.run"}  # noqa: F405
JOB_RUNNERS |= {"harvest-part": "tests.kgharvest.harvests.parts.held_part.run"}
JOB_LEASE_S = int(os.environ.get("TEST_LEASE_S", 2))
JOB_LOOK_EVERY_S = 0.5
HARVEST_SHARED_AFTER_S = 0
