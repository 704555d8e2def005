"""Prompt strategies: the prompts and weights of a harvest, by setting.

`kgharvest.engine.settings` lists the settings and names their functions in this module.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from pkgutil import resolve_name

import numpy as np
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, Tick, fits
from kgharvest.engine.language_models.causal import LineByLine
from kgharvest.engine.language_models.masked import MaskFillingLM
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.prompt_learning import autoprompt, lpaqa, soft_prompts
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import Compatibility, Example, step_by_step
from kgharvest.engine.prompts.creation import N_PROMPTS, create_prompts, make_paraphraser
from kgharvest.engine.prompts.few_shot import (
    FORMS,
    MIN_EXAMPLES,
    MOST_EXAMPLES,
    MOST_PERMUTATIONS,
    Entities,
    FewShot,
    Form,
    Tuples,
    is_in_lines,
    permutations,
    with_examples,
)
from kgharvest.engine.prompts.prompt_set import PromptSet, nearest_words, prompt_text
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.scoring import Encoded, compatibilities, consistency, prompt_weights
from kgharvest.engine.settings import SETTINGS, WITHOUT_LEARNING, find_setting
from kgharvest.engine.types import (
    N_TRIGGERS,
    AutoPromptParams,
    BadPrompt,
    HarvestParams,
    HarvestSpec,
    Notice,
    OnProgress,
    Paraphraser,
    Reporter,
    UnsupportedModel,
    WeightedPrompt,
)

# Search parameters of the paper's baseline.
TRIGGER_SEARCH = AutoPromptParams(n_candidates=10, iterations=200, patience=20)
UNUSED_NEGATIVES = Notice(
    "unused_negative_seed_tuples",
    "The negative seed tuples were not used: only prompts with worked examples, for causal LMs, show them.",
)
SOFT_PARAMS = soft_prompts.SoftPromptParams(learning_rate=1e-2, epochs=16)


@dataclass(frozen=True)
class ChosenPrompts:
    """The prompts of a harvest.

    prompt_set: tokenized prompts. weighted: their texts and weights for display.
    templates: prompts whose words must not be entities. notices: skipped prompts, missing paraphrases.
    examples: seed tuples and negative seed tuples that the prompts show, and which the harvest therefore omits.
    example_scores: consistency of each example under prompts that show only the other examples.
    """

    prompt_set: PromptSet
    weighted: tuple[WeightedPrompt, ...]
    templates: tuple[PromptTemplate, ...]
    notices: tuple[Notice, ...] = ()
    examples: tuple[tuple[str, ...], ...] = ()
    example_scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class PromptSource:
    """Input of a strategy. paraphraser: replaces the paraphraser in `spec`."""

    spec: HarvestSpec
    lm: LanguageModel
    seeds: Sequence[Encoded]
    paraphraser: Paraphraser | None
    on_progress: OnProgress

    @property
    def longest_pattern(self) -> Pattern:
        """Number of tokens of each entity in the longest tuple that must fit into the prompts."""
        seeds = [tuple(map(len, seed)) for seed in self.seeds]
        return max([(self.spec.params.max_entity_tokens,) * len(self.seeds[0]), *seeds], key=sum)

    @property
    def mask_filling_lm(self) -> MaskFillingLM:
        if not isinstance(self.lm, MaskFillingLM):
            raise UnsupportedModel(
                f"Setting {self.spec.setting} requires an LM with a mask token, but {self.lm.name} has none. "
                f"Use another LM, or one of the settings {', '.join(WITHOUT_LEARNING)}."
            )
        return self.lm


def choose_prompts(source: PromptSource) -> ChosenPrompts:
    """Return the prompts of the setting. Raises EngineError, or UnsupportedModel if the LM cannot learn them."""
    setting = find_setting(source.spec.setting)
    chosen: ChosenPrompts = resolve_name(setting.strategy)(source)
    if source.spec.negative_seed_tuples and not chosen.examples and not setting.asks_chat:  # chat models are shown them
        chosen = replace(chosen, notices=(*chosen.notices, UNUSED_NEGATIVES))
    return chosen


# Prompts in words


def initial_prompts(source: PromptSource) -> ChosenPrompts:
    if isinstance(source.lm, LineByLine):
        return few_shot_prompts(source, initial_templates(source), 0)
    return weigh_by_compatibility(source, initial_templates(source))


def all_prompts(source: PromptSource) -> ChosenPrompts:
    """Return the existing prompts of the relation, or paraphrases of its initial prompts.

    Causal LMs get permutations of the worked examples instead of paraphrases.
    """
    if isinstance(source.lm, LineByLine):
        templates = all_templates(source) if source.spec.prompts else initial_templates(source)
        return few_shot_prompts(source, templates, MOST_PERMUTATIONS)
    return weigh_by_compatibility(source, all_templates(source))


def best_prompt(source: PromptSource) -> ChosenPrompts:
    chosen = all_prompts(source)
    best = max(range(len(chosen.weighted)), key=lambda index: chosen.weighted[index].weight)
    return replace(
        chosen,
        prompt_set=PromptSet((chosen.prompt_set.prompts[best],), (1.0,)),
        weighted=(replace(chosen.weighted[best], weight=1.0),),
        templates=(chosen.templates[best % len(chosen.templates)],),
    )


def initial_templates(source: PromptSource) -> list[PromptTemplate]:
    """Return the initial prompts. Raises BadPrompt if one is too long for the LM."""
    templates = parse_prompts(source.spec.initial_prompts, len(source.seeds[0]))
    for template in templates:
        check_fits(source.lm, template, source.longest_pattern)
    return templates


def all_templates(source: PromptSource) -> list[PromptTemplate]:
    """Return the existing prompts, or the initial prompts and their paraphrases, that fit into the LM's context.

    A prompt must fit with the longest entities of the search and of the seeds. Raises BadPrompt if no prompt fits.
    """
    spec, lm, pattern = source.spec, source.lm, source.longest_pattern
    if spec.prompts:
        templates = parse_prompts(spec.prompts, len(source.seeds[0]))
    else:
        paraphraser = source.paraphraser or make_paraphraser(spec.paraphraser, lm)
        rng = random.Random(spec.params.seed)
        initial = initial_templates(source)
        templates = create_prompts(initial, spec.seed_tuples, paraphraser, rng, source.on_progress)
    fitting = [template for template in templates if fits(lm, lm.encode_prompt(template), pattern)]
    if not fitting:
        check_fits(lm, templates[0], pattern)
    return fitting


def weigh_by_compatibility(source: PromptSource, templates: Sequence[PromptTemplate]) -> ChosenPrompts:
    """Weight the prompts by the softmax of their mean compatibility with the seed tuples."""
    weighted = weigh_prompts(source.lm, templates, source.seeds, source.spec.params, source.on_progress)
    encoded = tuple(source.lm.encode_prompt(template) for template in templates)
    prompt_set = PromptSet(encoded, tuple(prompt.weight for prompt in weighted))
    return ChosenPrompts(prompt_set, tuple(weighted), tuple(templates), notices_of_prompts(source.spec, templates))


def weigh_prompts(
    lm: LanguageModel,
    templates: Sequence[PromptTemplate],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[WeightedPrompt]:
    encoded = [lm.encode_prompt(template) for template in templates]
    means = mean_compatibilities(lm, encoded, seeds, params, on_progress)
    return [
        WeightedPrompt(template.text, float(mean), float(weight))
        for template, mean, weight in zip(templates, means, prompt_weights(means), strict=True)
    ]


def mean_compatibilities(
    lm: LanguageModel,
    prompts: Sequence[EncodedPrompt],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    on_progress: OnProgress,
) -> NDArray[np.float64]:
    """Return (P,): the mean compatibility of the seed tuples with each prompt, in nats."""
    report = Reporter(on_progress, "weights", len(prompts))
    scores = compatibilities(lm, prompts, seeds, params.alpha, params.batch_size, partial(report, 0))  # (E, P)
    report(len(prompts))
    means: NDArray[np.float64] = scores.mean(axis=0)
    return means


def check_fits(lm: LanguageModel, template: PromptTemplate, pattern: Pattern) -> None:
    """Raise BadPrompt if the prompt is too long for `lm` with entities of the lengths in `pattern`."""
    if not fits(lm, lm.encode_prompt(template), pattern):
        raise BadPrompt(
            f"The prompt {template.text!r} with {sum(pattern)} entity tokens exceeds the LM's maximum of "
            f"{lm.max_tokens} tokens. Shorten it."
        )


def notices_of_prompts(spec: HarvestSpec, templates: Sequence[PromptTemplate]) -> tuple[Notice, ...]:
    """Return a notice if existing prompts are too long for the LM or if paraphrases are missing."""
    if not SETTINGS[spec.setting].takes_ready_prompts:
        return ()
    n_ready, n_used = len(set(spec.prompts)), len(templates)
    if n_ready > n_used:
        text = f"{n_ready - n_used} of {n_ready} existing prompts were skipped because they are too long for this LM."
        return (Notice("long_prompts", text),)
    if n_ready or n_used >= N_PROMPTS:
        return ()
    initial = {PromptTemplate.parse(text).text for text in spec.initial_prompts}
    problem = "No paraphrases of the initial prompts were found, so only the initial prompts were used."
    if {template.text for template in templates} - initial:
        problem = f"Paraphrases of the initial prompts are missing: {n_used} of {N_PROMPTS} prompts were used."
    return (Notice("few_paraphrases", f"{problem} Add more prompts or choose another paraphraser."),)


# Prompts with worked examples


def few_shot_prompts(source: PromptSource, templates: Sequence[PromptTemplate], n_permutations: int) -> ChosenPrompts:
    """Return `templates` with the seed tuples as worked examples, and with `n_permutations` other orders of them.

    The prompts also deny the negative seed tuples.

    The form of a prompt and the weights follow from the mean compatibility of each example with the prompt that shows
    only the others.
    """
    examples, negatives = examples_that_fit(source, templates)
    if len(examples) < MIN_EXAMPLES or all(map(is_in_lines, templates)):
        return weigh_by_compatibility(source, templates)
    orders = permutations(examples, n_permutations, random.Random(source.spec.params.seed))
    n_measured = count()
    report = Reporter(source.on_progress, "weights", len(templates) * len(FORMS) + len(orders))

    def held_out(shown: FewShot) -> NDArray[np.float64]:
        """Return (E,): the compatibility of each of `examples` with the prompt that shows only the others."""
        tick = partial(report, next(n_measured))
        return np.array([held_out_compatibility(source, shown, example, tick) for example in examples])

    prompts, scores = [], []
    for template in templates:
        candidates = [FewShot(template, examples, form, negatives) for form in forms_for(source.lm, template)]
        measured = [held_out(shown) for shown in candidates]
        best = max(range(len(candidates)), key=lambda index: measured[index].mean())
        prompts.append(candidates[best])
        scores.append(measured[best])
    for order, shown in zip(orders, cycle(tuple(prompts)), strict=False):
        prompts.append(shown._replace(examples=order))
        scores.append(held_out(prompts[-1]))
    means = np.mean(scores, axis=1)  # (P,)
    weights = prompt_weights(means)
    written = [shown.template() for shown in prompts]
    return ChosenPrompts(
        PromptSet(tuple(map(source.lm.encode_prompt, written)), tuple(weights.tolist())),
        tuple(
            WeightedPrompt(prompt.text, float(mean), float(weight))
            for prompt, mean, weight in zip(written, means, weights, strict=True)
        ),
        tuple(templates),
        examples=examples + negatives,
        example_scores=tuple(consistency(np.transpose(scores), weights).tolist()),
    )


def forms_for(lm: LanguageModel, template: PromptTemplate) -> list[Form]:
    """Return the forms of worked examples that suit the LM and the prompt."""
    return [
        form
        for form in FORMS
        if (form != "chat" or (isinstance(lm, LineByLine) and lm.tokens.has_chat_template))
        and with_examples(template, (), form) is not None
    ]


def examples_that_fit(source: PromptSource, templates: Sequence[PromptTemplate]) -> tuple[Tuples, Tuples]:
    """Return the first seed tuples and negative seed tuples that fit into every prompt in every form.

    Both are limited to MOST_EXAMPLES. If the prompts are too long, negative seed tuples are omitted first.
    """
    lm, spec = source.lm, source.spec
    examples, negatives = spec.seed_tuples[:MOST_EXAMPLES], spec.negative_seed_tuples[:MOST_EXAMPLES]
    while examples and not all(
        fits(lm, lm.encode_prompt(FewShot(template, examples, form, negatives).template()), source.longest_pattern)
        for template in templates
        for form in forms_for(lm, template)
    ):
        examples, negatives = (examples, negatives[:-1]) if negatives else (examples[:-1], ())
    return examples, negatives


def held_out_compatibility(source: PromptSource, shown: FewShot, example: Entities, tick: Tick) -> float:
    """Return the compatibility of `example` with the prompt that shows the other examples."""
    others = shown._replace(examples=tuple(other for other in shown.examples if other != example))
    prompt = source.lm.encode_prompt(others.template())
    encoded = tuple(source.lm.encode_entity(entity) for entity in example)
    params = source.spec.params
    return float(compatibilities(source.lm, [prompt], [encoded], params.alpha, params.batch_size, tick)[0, 0])


# Learned prompts


def all_prompts_with_learned_weights(source: PromptSource) -> ChosenPrompts:
    """LPAQA: use all prompts, and learn weights that maximize the likelihood of the seed tuples."""
    lm = source.lm
    if not isinstance(lm, PretrainedLM):
        raise UnsupportedModel(
            f"Setting {source.spec.setting} requires a local LM, but {lm.name} is behind a server. "
            f"Use one of the settings {', '.join(WITHOUT_LEARNING)}."
        )
    templates = all_templates(source)
    prompts = tuple(lm.encode_prompt(template) for template in templates)
    tick = partial(Reporter(source.on_progress, "weights", len(prompts)), 0)
    questions = [
        [
            question
            for seed in source.seeds
            for question in step_by_step(lm, prompt, [ids + lm.entity_end for ids in seed], tuple(map(len, seed)))
        ]
        for prompt in prompts
    ]  # (K, Q)
    vectors, targets = lpaqa.question_vectors(lm, questions, source.spec.params.batch_size, tick)
    prompt_set = PromptSet(prompts, lpaqa.optimised_weights(lm, vectors, targets, tick))
    return with_compatibilities(source, prompt_set, [template.text for template in templates], templates)


def learned_triggers(source: PromptSource) -> ChosenPrompts:
    """AutoPrompt as adapted by BertNet: trigger tokens that maximize the compatibility of the seed tuples.

    The search starts from masks between the entities and from the words of each initial prompt.
    """
    lm, seeds = source.mask_filling_lm, source.seeds
    gaps = ((TRIGGER,) * N_TRIGGERS,) * (len(seeds[0]) - 1)
    between = TriggerTemplate((lm.tokens.prefix, *gaps, lm.tokens.suffix), tuple(range(len(seeds[0]))))
    initial = [lm.encode_prompt(template) for template in initial_templates(source)]
    starts = [(between, (lm.mask_id,) * between.n_triggers)]
    for prompt in initial:
        words = tuple(token for segment in prompt.segments for token in segment if lm.continues_entity[token])
        segments = tuple(
            tuple(TRIGGER if lm.continues_entity[token] else token for token in segment) for segment in prompt.segments
        )
        if words:
            starts.append((TriggerTemplate(segments, prompt.slots), words))
    examples = [Example(seed) for seed in seeds]
    allowed = autoprompt.allowed_triggers(lm, {token for seed in seeds for entity in seed for token in entity})
    # There are too few seed tuples for a dev set.
    task = TriggerTask(Compatibility(source.spec.params.alpha), examples, examples, allowed)
    params = replace(TRIGGER_SEARCH, seed=source.spec.params.seed)
    searches = [
        autoprompt.search_trigger(lm, template, start, task, params, source.on_progress) for template, start in starts
    ]
    best = max(searches, key=lambda search: search.dev_score).prompt
    text = prompt_text(lm, best)
    return with_compatibilities(source, PromptSet((best,), (1.0,)), [text], [PromptTemplate.parse(text)])


def learned_soft_prompts(source: PromptSource) -> ChosenPrompts:
    """Soft prompts that start from all prompts. Their mixture maximizes the likelihood of the seed tuples."""
    lm, templates = source.mask_filling_lm, all_templates(source)
    softened, vectors = soft_prompts.soften(lm, [lm.encode_prompt(template) for template in templates])
    params = replace(SOFT_PARAMS, seed=source.spec.params.seed)
    prompt_set = soft_prompts.learn_on_tuples(lm, softened, vectors, source.seeds, params, source.on_progress)
    words = [nearest[0][0] for nearest in nearest_words(lm, vectors, 1)]
    return with_compatibilities(source, prompt_set, [prompt_text(lm, prompt, words) for prompt in softened], templates)


def with_compatibilities(
    source: PromptSource, prompt_set: PromptSet, texts: Sequence[str], templates: Sequence[PromptTemplate]
) -> ChosenPrompts:
    """Return a learned prompt set with the texts and compatibilities of its prompts."""
    lm, prompts = prompt_set.reader(source.lm), prompt_set.prompts
    means = mean_compatibilities(lm, prompts, source.seeds, source.spec.params, source.on_progress)
    weighted = [
        WeightedPrompt(text, float(mean), weight, prompt.segments)
        for text, mean, weight, prompt in zip(texts, means, prompt_set.weights, prompts, strict=True)
    ]
    return ChosenPrompts(prompt_set, tuple(weighted), tuple(templates), notices_of_prompts(source.spec, templates))
