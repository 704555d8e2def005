"""Cost of opening a round that draws all tuples of a harvest.

    python benches/opening.py [--statements 20000 100000]    on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/opening.py    on an empty PostgreSQL database

Prints wall-clock seconds, CPU seconds of this process, and CPU seconds of PostgreSQL if it runs on this machine.

Must hold: 10 s for 100,000 statements on PostgreSQL.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.conf import settings
from django.db import connection, transaction

from annotation.rounds.services import open_round
from benches.judging_http import database_seconds
from kgharvest.bulk.insert import insert_rows
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple
from tests import factories


@transaction.atomic
def harvest_of(n: int) -> HarvestJob:
    relation = factories.make_relation(statement="<ENT0> goes with <ENT1>.")
    job = factories.make_harvest_job("succeeded", relation=relation, n_tuples=n)
    names = [[f"thing {number}", f"other thing {number}"] for number in range(n)]
    rows = ((relation.pk, entities, "\t".join(entities)) for entities in names)
    insert_rows(KnowledgeTuple, ("relation", "entities", "key"), rows)
    known = relation.knowledge_tuples.order_by("pk").values_list("pk", flat=True)
    ranked = enumerate(zip(known, names, strict=True), start=1)
    rows = ((job.pk, pk, rank, -rank / n, entities) for rank, (pk, entities) in ranked)
    insert_rows(HarvestedTuple, ("job", "knowledge_tuple", "rank", "score", "surface"), rows)
    return job


def cost_of_opening(job: HarvestJob) -> tuple[float, float, float]:
    """Return wall-clock seconds, CPU seconds of this process, and CPU seconds of the database."""
    document = {"name": f"of-{job.n_tuples}", "cells": [{"job": job.pk, "n": None}]}
    wall, cpu, database = time.perf_counter(), time.process_time(), database_seconds()
    open_round(document, project=job.project)
    return time.perf_counter() - wall, time.process_time() - cpu, database_seconds() - database


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, nargs="+", default=[20_000, 100_000])
    arguments = parser.parse_args()
    settings.DEBUG = False  # with DEBUG, Django stores every SQL statement
    migrate()
    print(connection.vendor)
    for n in arguments.statements:
        job = harvest_of(n)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")  # as autovacuum does after this many new rows
        wall, cpu, database = cost_of_opening(job)
        print(f"{n:>9,} statements  wall {wall:6.2f} s  CPU {cpu:6.2f} s, database {database:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
