"""Records of text classification: methods, grids of AutoPrompt, and learning curves."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from kgharvest import code_version
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.contrib.probing.text_tasks.baselines import BASELINES
from kgharvest.contrib.probing.text_tasks.classification import (
    ClassifyRequest,
    ClassScores,
    EncodedText,
    TextClassifier,
    class_scores,
    given_label_tokens,
    learn_classifier,
    majority,
    select_label_tokens,
)
from kgharvest.contrib.probing.text_tasks.labelled_texts import subset
from kgharvest.contrib.probing.text_tasks.options import METHODS, NO_CURVE, NO_GRID
from kgharvest.contrib.probing.text_tasks.text_template import EncodedTexts, TextTemplate, encode_texts
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.types import OnProgress, ignore
from kgharvest.errors import DomainError
from kgharvest.statistics.rates import rate


def classification_records(
    lm: MaskedLM, control: MaskedLM | None, request: ClassifyRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield one record per method, and another one on the control except for majority.

    With a learning curve, the methods learn from each subset instead. Subsets are not measured on the control.
    """
    if not request.curve.sizes:
        yield from _method_records(lm, control, request, on_progress)
        return
    for size, number in product(request.curve.sizes, range(request.curve.n_subsets)):
        seed = request.params.seed + number
        part = replace(
            request,
            texts=subset(request.texts, size, seed),
            params=replace(request.params, seed=seed),
            training=replace(request.training, seed=seed),
            curve=NO_CURVE,
        )
        for record in _method_records(lm, None, part, on_progress):
            yield record | {"train_size": size, "subset": number}


def _method_records(
    lm: MaskedLM, control: MaskedLM | None, request: ClassifyRequest, on_progress: OnProgress
) -> Iterator[dict[str, Any]]:
    for method in sorted(set(request.methods), key=list(METHODS).index):
        if method == "majority":
            texts = _encoded(lm, request.manual, request)
            scores_by_part = {part: majority(texts["train"].examples, texts[part].examples) for part in PARTS[1:]}
            cost = {"is_control": False, "forwards": 0, "seconds": 0.0}
            yield _record("majority", lm, request, texts, scores_by_part) | cost
            continue
        for tested_lm in [lm, control] if control else [lm]:
            meter = CostMeter(tested_lm)
            if method in BASELINES:
                record = _baseline_record(method, tested_lm, request)
            elif method == "manual":
                record = _prompt_record(method, tested_lm, request, on_progress)
            else:
                record = _best_of_grid(tested_lm, request, on_progress)
            yield record | {"is_control": tested_lm is not lm} | meter.read()


def _best_of_grid(lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    """Return AutoPrompt's record with the best dev accuracy, then log-likelihood, among the values of the grid."""
    triggers = request.grid.triggers or [request.template.n_triggers]
    records = []
    cells = product(triggers, request.grid.label_tokens or [request.k], request.grid.candidates or [None])
    for n_triggers, k, candidates in cells:
        template = request.template.with_triggers(n_triggers)
        params = replace(request.params, n_candidates=candidates or request.params.n_candidates)
        cell = replace(request, template=template, k=k, params=params, grid=NO_GRID)
        record = _prompt_record("autoprompt", lm, cell, on_progress)
        records.append(record | {"n_triggers": n_triggers, "k": k, "n_candidates": params.n_candidates})
    best = max(records, key=lambda record: (record["dev_accuracy"], record["dev_log_likelihood"]))
    names = ("n_triggers", "k", "n_candidates", "dev_accuracy", "accuracy")
    return best | {"grid": [{name: record[name] for name in names} for record in records]}


def _encoded(lm: MaskedLM, template: TextTemplate, request: ClassifyRequest) -> dict[str, EncodedTexts[EncodedText]]:
    """Encode the texts of each part. Raises NotClassified if a part, or a label in train, has no encodable text."""
    number = {label: index for index, label in enumerate(request.texts.labels)}
    texts_by_part = {
        part: encode_texts(lm, template, ((row.texts, number[row.label]) for row in rows), EncodedText)
        for part, rows in request.texts.parts.items()
    }
    for part, texts in texts_by_part.items():
        if not texts.examples:
            reasons = ", ".join(f"{n} with {reason}" for reason, n in texts.left_out.items())
            raise DomainError("NotClassified", f"{lm.name} cannot encode any {part} text ({reasons}). Add other texts.")
    encoded_labels = {text.label for text in texts_by_part["train"].examples}
    if missing := [label for label in request.texts.labels if number[label] not in encoded_labels]:
        raise DomainError(
            "NotClassified", f"{lm.name} cannot encode any training text of the label {missing[0]!r}. Add other texts."
        )
    return texts_by_part


def _prompt_record(method: str, lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    """Return the record of the manual prompt or AutoPrompt."""
    template = request.template if method == "autoprompt" else request.manual
    texts, encoded, labels = _encoded(lm, template, request), template.encode(lm), request.texts.labels
    train, dev = texts["train"].examples, texts["dev"].examples
    if request.label_words:
        label_tokens = given_label_tokens(lm, [request.label_words[label] for label in labels])
    else:
        label_tokens = select_label_tokens(lm, encoded, train, request.k, request.params.seed)
    words = lm.tokens.texts()
    trigger: dict[str, Any] = {}
    if method == "autoprompt":
        classifier, learned = learn_classifier(lm, encoded, label_tokens, (train, dev), request.params, on_progress)
        trigger = {"trigger": [words[token] for token in learned.trigger], "trigger_ids": list(learned.trigger)}
    else:
        classifier = TextClassifier(lm, encoded.fill((lm.mask_id,) * encoded.n_triggers), label_tokens)
    scores_by_part = {part: classifier.measure(texts[part].examples) for part in PARTS[1:]}
    return _record(method, lm, request, texts, scores_by_part) | {
        "template": template.text,
        "prompt": template.prompt_text(lm, classifier.prompt),
        "labels": {
            label: [words[token] for token in tokens] for label, tokens in zip(labels, label_tokens, strict=True)
        },
        "label_ids": dict(zip(labels, map(list, label_tokens), strict=True)),
        **trigger,
    }


def _baseline_record(method: str, lm: MaskedLM, request: ClassifyRequest) -> dict[str, Any]:
    """Return the record of a trained classifier."""
    texts = _encoded(lm, request.manual, request)
    params = replace(request.training, seed=request.params.seed)
    classifier = BASELINES[method](lm, texts["train"].examples, texts["dev"].examples, params)
    scores_by_part = {
        part: class_scores(classifier.logprobs(texts[part].examples), texts[part].examples) for part in PARTS[1:]
    }
    return _record(method, lm, request, texts, scores_by_part) | {"n_parameters": classifier.n_parameters}


def _record(
    method: str,
    lm: MaskedLM,
    request: ClassifyRequest,
    texts: Mapping[str, EncodedTexts[EncodedText]],
    scores: Mapping[str, ClassScores],
) -> dict[str, Any]:
    test = scores["test"]
    accuracy = rate(test.n_correct, len(test.labels))
    precision = {label: test.precision(number) for number, label in enumerate(request.texts.labels)}
    return {
        "method": method,
        "lm": lm.name,
        "revision": lm.revision,
        **{f"n_{part}": len(texts[part].examples) for part in PARTS},
        "left_out": {part: dict(texts[part].left_out) for part in PARTS},
        "n_cut": {part: texts[part].n_cut for part in PARTS},
        "dev_accuracy": scores["dev"].accuracy,
        "dev_log_likelihood": scores["dev"].log_likelihood,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "log_likelihood": test.log_likelihood,
        "precision": {label: share.value for label, share in precision.items()},
        "precision_low": {label: share.low for label, share in precision.items()},
        "precision_high": {label: share.high for label, share in precision.items()},
        "n_predicted": {label: test.predicted.count(number) for number, label in enumerate(request.texts.labels)},
        "seed": request.params.seed,
        "code_version": code_version(),
    }
