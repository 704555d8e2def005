"""What a report would rest on if a draft were opened: its statements and strata, without a judgment yet."""

from __future__ import annotations

from itertools import chain

import numpy as np

from annotation.models import Round
from annotation.rounds.builder import FrozenRound
from evaluation.evidence.arrays import Draws, Evidence, Judgments
from evaluation.evidence.queries import cells_of_strata, stratum_keys
from kgharvest.statistics.arrays import INCOMPLETE


def draft_evidence(round: Round, frozen: FrozenRound) -> Evidence:
    """frozen: what opening the draft stores. Gold is left out: it is in no rate."""
    tasks = [task.knowledge_tuple_id for task in frozen.tasks if not task.is_gold]
    number_of_task = {knowledge_tuple: number for number, knowledge_tuple in enumerate(tasks)}
    cells = cells_of_strata(stratum for stratum, _ in frozen.samples)
    number_of_stratum = {id(stratum): number for number, stratum in enumerate(chain(*cells.values()))}
    draws = [
        (number_of_task[drawn.knowledge_tuple_id], number_of_stratum[id(stratum)])
        for stratum, tuples in frozen.samples
        for drawn in tuples
    ]
    task, stratum = np.array(sorted(draws), dtype=np.int64).reshape(-1, 2).T
    nothing = Judgments(*(np.zeros(0, dtype=np.int64),) * 3, np.zeros(0))
    return Evidence(
        round=round.name,
        source=Round.Source.SIMULATED,
        seed=round.seed,
        judgments_per_task=round.judgments_per_task,
        quorum=round.quorum,
        has_thirds=round.third_only_if_split,
        verdict=np.full(len(tasks), INCOMPLETE),
        adjudicated=np.full(len(tasks), INCOMPLETE),
        third=np.full(len(tasks), -1),
        wanted=np.full(len(tasks), round.judgments_per_task),
        judgments=nothing,
        cells=list(cells),
        strata=stratum_keys(cells),
        draws=Draws(task, stratum, np.zeros_like(task), np.full(len(task), np.nan)),
        annotators=(),
        gold=nothing,
        gold_truth=np.zeros(0, dtype=np.int64),
        demonstrators=(),
    )
