import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from annotation.judging.verdicts import majority
from evaluation.evidence.arrays import VERDICTS
from evaluation.statistics import verdict_rules


@given(counts=st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=20), quorum=st.integers(1, 3))
def test_arrays_and_single_tasks_have_one_majority_rule(counts, quorum):
    verdicts = verdict_rules.majority(np.array(counts), quorum)

    one_by_one = [majority(n_true, n_false, n_true + n_false + n_other, quorum) for n_true, n_false, n_other in counts]
    assert [VERDICTS[verdict] for verdict in verdicts] == one_by_one
