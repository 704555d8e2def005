"""Dawid-Skene, compared with the published example, explicit loops, and crowd-kit."""

from math import exp, log

import numpy as np
import pandas as pd
import pytest

from kgharvest.statistics import annotator_models
from kgharvest.statistics.annotator_models import Judged, fit_dawid_skene

# Dawid and Skene (1979), Table 1: 45 patients, the first of five observers asked three times; classes 1 to 4. As in the
# R package `rater` (data set anesthesia). One row per patient: observer 1 three times, observers 2 to 5.
PATIENTS = """
111 1111  333 4334  112 2122  222 3121  222 3222  222 3322  122 2111  333 3433  222 2223  232 2223
444 4444  222 3343  111 1111  222 3212  121 1111  111 2111  111 1111  111 1111  222 2221  222 1322
222 2222  222 2221  222 3222  221 2222  111 1111  111 1111  232 2222  111 1111  111 1111  112 1121
111 1111  333 3233  111 1111  222 2222  222 3232  433 4343  221 2232  232 3233  333 3432  111 1111
111 1111  121 2111  232 2222  121 1111  222 2222
"""
OBSERVERS = [0, 0, 0, 1, 2, 3, 4]


def anesthesia() -> Judged:
    words = PATIENTS.split()
    rows = [first + rest for first, rest in zip(words[::2], words[1::2], strict=True)]
    labels = np.array([[int(label) - 1 for label in row] for row in rows])  # (45, 7)
    tasks = np.repeat(np.arange(len(rows)), len(OBSERVERS))
    return Judged(tasks, np.tile(OBSERVERS, len(rows)), labels.ravel(), len(rows), 5, 4)


def crowd(n_tasks: int = 300, n_annotators: int = 8, k: int = 4) -> Judged:
    """Simulate annotators of different skill."""
    rng = np.random.default_rng(3)
    truth = (rng.random(n_tasks) < 0.7).astype(int)
    skill = np.linspace(0.6, 0.95, n_annotators)
    annotator = np.concatenate([rng.choice(n_annotators, k, replace=False) for _ in range(n_tasks)])
    task = np.repeat(np.arange(n_tasks), k)
    label = np.where(rng.random(n_tasks * k) < skill[annotator], truth[task], 1 - truth[task])
    by_annotator = np.argsort(annotator, kind="stable")
    return Judged(task[by_annotator], annotator[by_annotator], label[by_annotator], n_tasks, n_annotators, 2)


def em_in_loops(judged: Judged, n_iterations: int):
    """Run EM with equations 2.3 to 2.5 of Dawid and Skene in explicit loops."""
    rows = list(zip(judged.task, judged.annotator, judged.label, strict=True))
    tasks, labels, annotator_models = range(judged.n_tasks), range(judged.n_labels), range(judged.n_annotators)
    n_given = {(t, c): sum(1 for task, _, label in rows if (task, label) == (t, c)) for t in tasks for c in labels}
    posterior = {t: [n_given[t, c] / sum(n_given[t, d] for d in labels) for c in labels] for t in tasks}
    for _ in range(n_iterations):
        prior = [max(sum(posterior[t][c] for t in tasks) / len(tasks), 1e-10) for c in labels]
        counts = {(a, c, observed): 0.0 for a in annotator_models for c in labels for observed in labels}
        for task, annotator, label in rows:
            for c in labels:
                counts[annotator, c, label] += posterior[task][c]
        counts = {key: max(count, 1e-10) for key, count in counts.items()}
        errors = {
            (a, c, observed): counts[a, c, observed] / sum(counts[a, c, other] for other in labels)
            for a, c, observed in counts
        }
        joint = {t: [log(prior[c]) for c in labels] for t in tasks}
        for task, annotator, label in rows:
            for c in labels:
                joint[task][c] += log(errors[annotator, c, label])
        for t in tasks:
            likelihoods = [exp(value - max(joint[t])) for value in joint[t]]
            posterior[t] = [likelihood / sum(likelihoods) for likelihood in likelihoods]
    return prior, errors, posterior


def test_dawid_skene_matches_published_estimates():
    fitted = fit_dawid_skene(anesthesia())

    assert fitted.converged
    assert fitted.prior == pytest.approx([0.40, 0.42, 0.11, 0.07], abs=0.005)  # Table 4, estimates of p


def test_dawid_skene_matches_explicit_equations():
    judged = anesthesia()
    fitted = fit_dawid_skene(judged)

    prior, errors, posterior = em_in_loops(judged, n_iterations=300)

    assert fitted.prior == pytest.approx(prior, abs=1e-6)
    assert fitted.labels == pytest.approx(np.array([posterior[t] for t in range(45)]), abs=1e-6)
    for (annotator, true, observed), error in errors.items():
        assert fitted.errors[annotator, true, observed] == pytest.approx(error, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_dawid_skene_matches_crowd_kit():
    judged = crowd()
    classification = pytest.importorskip("crowdkit.aggregation")
    table = pd.DataFrame({"task": judged.task, "worker": judged.annotator, "label": judged.label})

    fitted = fit_dawid_skene(judged)
    reference = classification.DawidSkene(n_iter=1000, tol=1e-12).fit(table)

    assert fitted.converged
    assert fitted.labels == pytest.approx(reference.probas_.sort_index()[[0, 1]].to_numpy(), abs=1e-6)
    assert fitted.prior == pytest.approx(reference.priors_.sort_index().to_numpy(), abs=1e-6)


def test_model_separates_skilled_annotators_from_guessers():
    judged = crowd()

    accuracies = fit_dawid_skene(judged).errors.diagonal(axis1=1, axis2=2).mean(axis=1)
    assert np.argmin(accuracies) in (0, 1, 2)
    assert fit_dawid_skene(judged).errors[-1].diagonal().min() > 0.85


def test_fit_ignores_order_of_annotators_and_tasks():
    judged = crowd()
    rng = np.random.default_rng(0)
    tasks, annotator_models = rng.permutation(judged.n_tasks), rng.permutation(judged.n_annotators)
    relabelled = judged._replace(task=tasks[judged.task], annotator=annotator_models[judged.annotator])

    assert fit_dawid_skene(relabelled).labels[tasks] == pytest.approx(fit_dawid_skene(judged).labels, abs=1e-6)


def test_extrapolation_reaches_same_fit_as_plain_em(monkeypatch):
    strides = fit_dawid_skene(crowd())

    monkeypatch.setattr(annotator_models, "LONGEST_STRIDE", 1.0)  # plain EM: three steps without extrapolation
    plain = fit_dawid_skene(crowd())

    assert strides.converged
    assert plain.converged
    assert strides.n_steps < plain.n_steps
    assert strides.labels == pytest.approx(plain.labels, abs=1e-4)


def test_fit_reports_non_convergence_at_step_limit(monkeypatch):
    monkeypatch.setattr(annotator_models, "MOST_STEPS", 5)

    assert not fit_dawid_skene(crowd()).converged


def test_gold_statements_have_separate_prior():
    """400 statements, 10 % true, and 100 gold statements, 90 % true, each judged by 4 of 8 annotators."""
    rng = np.random.default_rng(5)
    truth = np.concatenate([rng.random(400) < 0.1, rng.random(100) < 0.9]).astype(int)
    task = np.repeat(np.arange(500), 4)
    annotator = np.concatenate([rng.choice(8, 4, replace=False) for _ in range(500)])
    label = np.where(rng.random(2000) < 0.8, truth[task], 1 - truth[task])
    judged = Judged(task, annotator, label, 500, 8, 2, n_gold=100)

    fit, of_all_alike = fit_dawid_skene(judged), fit_dawid_skene(judged._replace(n_gold=0))

    assert fit.prior[1] == pytest.approx(truth[:400].mean(), abs=0.03)
    assert of_all_alike.prior[1] > 0.2
    for tasks in (slice(400), slice(400, 500)):
        n_right, n_right_of_all_alike = (
            np.count_nonzero(model.labels[tasks].argmax(axis=1) == truth[tasks]) for model in (fit, of_all_alike)
        )
        assert n_right >= n_right_of_all_alike
    assert fit.errors[:, 1, 1].mean() == pytest.approx(0.8, abs=0.05)


def test_unjudged_gold_changes_nothing():
    judged = crowd()

    fit, with_gold = fit_dawid_skene(judged), fit_dawid_skene(judged._replace(n_tasks=judged.n_tasks + 5, n_gold=5))

    assert with_gold.prior == pytest.approx(fit.prior, abs=1e-6)
    assert with_gold.errors == pytest.approx(fit.errors, abs=1e-6)


def test_extrapolation_stays_in_domain_of_logarithm():
    here, once, twice = (np.array([value]) for value in (-1.0, -12.0, -23.0))

    assert annotator_models._extrapolate(here, once, twice) == pytest.approx(annotator_models.SMALLEST)
