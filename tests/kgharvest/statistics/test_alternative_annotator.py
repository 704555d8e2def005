"""Alternative annotator test, compared with its authors' published numbers, hand computation, and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from kgharvest.statistics.judge_quality import TOO_FEW, alternative_annotator_test

# MT-Bench labels (Zheng et al. 2023) from github.com/nitaytech/AltTest, data/mtbench. Each key is a question number
# and the initial of the LM compared with gpt-3.5-turbo. Each value has a letter per turn: a first, b second, t tie.
EXPERTS = {
    "author_0": """82L ba 85C tt 85V tt 86A bb 91L aa 91V ta 92C ab 92V bb 96A bt 97G bb 99C bt 104V ta 105V tt 106V tt
        107C tt 114A tt 115A bb 115C bb 117G bb 117V aa 118A bt 130L aa 131L aa 133V ta 134A tb 137A bb 138A bt 138G tt
        140L aa 141L aa 149L aa 150V bb 156V bb 158A tb 159A bt 159V tb 160V ta""",
    "author_4": """82L aa 82V ab 84A bb 87G bt 91V ba 91L aa 92C aa 92G ba 93G bt 95C ab 100C bb 100A at 100V tt 103G bb
        103V ta 104V aa 104G ta 105G tt 105V tt 109C tt 109V bt 110C ta 112C ta 114A bb 117G bb 118A bt 118L aa 123G tb
        133L aa 133V aa 134A tb 135A bb 137A bb 138A bb 138G aa 138L aa 140L aa 149L aa 150V ba 155V ba 158A bb
        160V tt""",
    "expert_24": """82V tt 84A tb 85C ta 85V aa 86A bb 87G ta 91V ba 92G ba 92V tb 93G tb 95C ab 96A bb 97G bb 99C bt
        100A ab 100C bb 100V aa 103G bb 103V ta 104G ta 105G bb 106V tt 107C tt 109C tt 109V bt 110C tt 112C tt 115C bb
        115A bb 117V aa 118L at 123G tt 130L aa 131L aa 133L aa 135A bb 138L aa 138G tb 141L aa 150V ab 155V ta 156V tb
        159A bb 159V tt""",
}
JUDGES = {
    "gemini_flash": """100A bb 100C bb 100V bb 103G bb 103V bb 104G bb 104V aa 105G aa 105V aa 106V bb 107C aa 109C aa
        109V bb 110C aa 112C tt 114A bb 115A bb 115C aa 117G aa 117V aa 118A aa 118L aa 123G bb 130L aa 131L aa 133L aa
        133V aa 134A bb 135A bb 137A bb 138A bb 138G bb 138L aa 140L aa 141L aa 149L aa 150V bb 155V aa 156V bb 158A bb
        159A bb 159V bb 160V bb 82L ba 82V bb 84A bb 85C bb 85V aa 86A bb 87G bb 91L ab 91V bb 92C aa 92G bb 92V ba
        93G bb 95C bb 96A bb 97G bb 99C aa""",
    "gemini_pro": """100A bb 100C bb 100V bb 103G bb 103V bb 104G aa 104V aa 105G tt 105V aa 106V tt 107C aa 109C bb
        109V bb 110C aa 112C tt 114A bb 115A bb 115C aa 117G aa 117V aa 118A ab 118L ba 123G tb 130L aa 131L aa 133L aa
        133V aa 134A bb 135A bb 137A bb 138A bb 138G aa 138L aa 140L aa 141L aa 149L aa 150V bb 155V aa 156V aa 158A bb
        159A bb 159V bb 160V bb 82L aa 82V bb 84A bb 85C ab 85V bb 86A bb 87G bb 91L aa 91V aa 92C aa 92G aa 92V bb
        93G bb 95C bb 96A bb 97G bb 99C aa""",
}


def turns(text: str) -> dict[str, int]:
    words = text.split()
    return {
        f"{statement} {turn}": "abt".index(letter)
        for statement, letters in zip(words[::2], words[1::2], strict=True)
        for turn, letter in enumerate(letters)
    }


def mt_bench(judge: str):
    judged, people = turns(JUDGES[judge]), [turns(text) for text in EXPERTS.values()]
    number = {statement: position for position, statement in enumerate(judged)}
    rows = [(number[statement], who, label) for who, labels in enumerate(people) for statement, label in labels.items()]
    task, annotator, label = np.array(rows).T
    return task, annotator, label, np.array(list(judged.values()))


@pytest.mark.parametrize(("judge", "omega", "rho"), [("gemini_flash", 0.0, 0.72), ("gemini_pro", 0.0, 0.76)])
def test_mt_bench_results_match_published_values(judge, omega, rho):
    """Published values: alt_test_example.ipynb, "Winning Rate" and "Advantage Probability", epsilon .2."""
    result = alternative_annotator_test(*mt_bench(judge), epsilon=0.2)

    assert (result.omega, round(result.rho, 2)) == (omega, rho)
    assert result.is_passed is False


def three_people(n: int, odd_ones: int, judge_errors: int):
    """Build labels that are all 0, except that the last annotator and the judge answer 1 for a few statements.

    The last annotator answers 1 for the first `odd_ones` statements, the judge for the last `judge_errors`.
    """
    task, annotator = np.tile(np.arange(n), 3), np.repeat(np.arange(3), n)
    label = np.zeros(3 * n, dtype=np.int64)
    label[2 * n : 2 * n + odd_ones] = 1
    judge = np.zeros(n, dtype=np.int64)
    judge[n - judge_errors :] = 1
    return task, annotator, label, judge


def test_results_match_hand_computation():
    """40 statements. The last annotator errs in 8, the judge in 5 others.

    Against the first annotator: the other labels are 0 and 0, or 0 and 1 for an error of the last annotator. The
    annotator wins the 5 statements in which the judge errs; all others are ties: W 35/40, mean difference .125.
    Against the last annotator: the judge wins 8 and loses 5: W 35/40, mean difference -.075.
    """
    data = three_people(40, odd_ones=8, judge_errors=5)

    result = alternative_annotator_test(*data, epsilon=0.2)

    first = ttest_1samp([1] * 5 + [0] * 35, 0.2, alternative="less").pvalue
    last = ttest_1samp([1] * 5 + [-1] * 8 + [0] * 27, 0.2, alternative="less").pvalue
    assert [row.advantage for row in result.annotators] == pytest.approx([0.875, 0.875, 0.875])
    assert result.rho == pytest.approx(0.875)
    # Benjamini and Yekutieli: p_(i) * 3 / i * (1 + 1/2 + 1/3), kept monotone. The first two share the largest p.
    harmonic = 1 + 1 / 2 + 1 / 3
    assert [row.p for row in result.annotators] == pytest.approx([
        first * harmonic, first * harmonic, last * 3 * harmonic,
    ])  # fmt: skip
    assert result.omega == pytest.approx(1 / 3)


def test_judge_identical_to_annotators_wins_against_all():
    result = alternative_annotator_test(*three_people(40, odd_ones=0, judge_errors=0), epsilon=0.1)

    assert (result.omega, result.rho, result.is_passed) == (1.0, 1.0, True)


def test_invalid_answer_matches_no_label():
    task, annotator, label, _ = three_people(40, odd_ones=0, judge_errors=0)

    result = alternative_annotator_test(task, annotator, label, np.full(40, 3), epsilon=0.1)

    assert (result.omega, result.rho) == (0.0, 0.0)


def test_unanswered_statements_are_excluded_and_too_few_give_no_test():
    task, annotator, label, judge = three_people(40, odd_ones=0, judge_errors=0)
    judge[:11] = -1

    result = alternative_annotator_test(task, annotator, label, judge, epsilon=0.1)

    assert (result.omega, result.rho, result.reason) == (None, None, TOO_FEW)


def test_fewer_than_three_annotators_give_no_test():
    task, annotator, label, judge = (column[:80] for column in three_people(40, odd_ones=0, judge_errors=0))

    assert alternative_annotator_test(task, annotator, label, judge, epsilon=0.1).reason == TOO_FEW
