"""Which prompts a harvest asks, how much each counts, and how they were obtained: the settings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning import autoprompt, lpaqa, soft_prompts
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, AutoPromptParams, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import Compatibility, Example, Question, step_by_step
from kgharvest.engine.prompt_learning.prompt_text import nearest_words, readable
from kgharvest.engine.prompts.creation import create_prompts
from kgharvest.engine.prompts.paraphrase import Paraphraser, from_settings
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.scoring import Encoded, compatibilities, prompt_weights
from kgharvest.engine.types import (
    N_TRIGGERS,
    SETTINGS,
    BadPrompt,
    EngineError,
    HarvestParams,
    HarvestSpec,
    OnProgress,
    Reporter,
    UnsupportedModel,
    WeightedPrompt,
)

# As in the paper's baseline.
TRIGGER_SEARCH = AutoPromptParams(n_candidates=10, iterations=200, patience=20)
SOFT_EPOCHS, SOFT_LEARNING_RATE = 16, 1e-2
WITHOUT_READY_PROMPTS = ("human", "autoprompt")


@dataclass(frozen=True)
class AskedPrompts:
    """prompt_set: what the LM is asked. weighted: the same for people. templates: whose words are no entities.

    notice: why some prompts were left out, in a sentence.
    """

    prompt_set: PromptSet
    weighted: tuple[WeightedPrompt, ...]
    templates: tuple[PromptTemplate, ...]
    notice: str | None = None


@dataclass(frozen=True)
class Choice:
    """What the settings choose from."""

    spec: HarvestSpec
    lm: LanguageModel
    seeds: Sequence[Encoded]
    paraphraser: Paraphraser | None
    on_progress: OnProgress

    @property
    def longest_pattern(self) -> Pattern:
        """The numbers of tokens in the entities of the longest tuple that the prompts will be asked with."""
        seeds = [tuple(map(len, seed)) for seed in self.seeds]
        return max([(self.spec.params.max_entity_tokens,) * len(self.seeds[0]), *seeds], key=sum)

    @property
    def masked_lm(self) -> MaskedLM:
        if not isinstance(self.lm, MaskedLM):
            raise UnsupportedModel(
                f"The setting {self.spec.setting} learns prompts on a masked LM, and {self.lm.name} is none; "
                "use a masked LM, or one of the settings human, top1 and multi."
            )
        return self.lm


def choose_prompts(choice: Choice) -> AskedPrompts:
    """Return the prompts of the setting. Raises an EngineError; UnsupportedModel if this LM cannot learn them."""
    if choice.spec.setting not in CHOOSE:
        raise EngineError(f"There is no setting {choice.spec.setting!r}; choose one of {', '.join(SETTINGS)}.")
    return CHOOSE[choice.spec.setting](choice)


# -- prompts in words --------------------------------------------------------------------------------------------------


def human(choice: Choice) -> AskedPrompts:
    """The initial prompts."""
    return weighed(choice, initial_prompts(choice))


def multi(choice: Choice) -> AskedPrompts:
    """All prompts: the ready ones, or paraphrases of the initial ones."""
    return weighed(choice, all_prompts(choice))


def top1(choice: Choice) -> AskedPrompts:
    """Of all prompts the one with the largest weight."""
    everything = multi(choice)
    best = max(range(len(everything.weighted)), key=lambda index: everything.weighted[index].weight)
    return AskedPrompts(
        PromptSet((everything.prompt_set.prompts[best],), (1.0,)),
        (WeightedPrompt(everything.weighted[best].text, everything.weighted[best].compatibility, 1.0),),
        (everything.templates[best],),
        everything.notice,
    )


def initial_prompts(choice: Choice) -> list[PromptTemplate]:
    """Raises BadPrompt if one is too long for the LM."""
    initial = parse_prompts(choice.spec.initial_prompts, len(choice.seeds[0]))
    for template in initial:
        check_fits(choice.lm, template, choice.longest_pattern)
    return initial


def all_prompts(choice: Choice) -> list[PromptTemplate]:
    """Return the ready prompts or paraphrases of the initial ones, those left out that are too long for the LM.

    Too long: with the longest entities that are searched or given as seeds.
    """
    spec = choice.spec
    if spec.prompts:
        return that_fit(choice.lm, parse_prompts(spec.prompts, len(choice.seeds[0])), choice.longest_pattern)
    paraphraser = choice.paraphraser or from_settings(spec.paraphraser, choice.lm)
    rng = random.Random(spec.params.seed)
    created = create_prompts(initial_prompts(choice), spec.seed_tuples, paraphraser, rng, choice.on_progress)
    return that_fit(choice.lm, created, choice.longest_pattern)


def weighed(choice: Choice, templates: Sequence[PromptTemplate]) -> AskedPrompts:
    """Weigh the prompts by the softmax of their mean compatibility with the seed tuples."""
    weighted = weigh_prompts(choice.lm, templates, choice.seeds, choice.spec.params, choice.on_progress)
    encoded = tuple(choice.lm.encode_prompt(template) for template in templates)
    prompt_set = PromptSet(encoded, tuple(prompt.weight for prompt in weighted))
    return AskedPrompts(prompt_set, tuple(weighted), tuple(templates), left_out(choice.spec, templates))


def weigh_prompts(
    lm: LanguageModel,
    templates: Sequence[PromptTemplate],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[WeightedPrompt]:
    scores = mean_compatibilities(lm, [lm.encode_prompt(one) for one in templates], seeds, params, on_progress)
    return [
        WeightedPrompt(template.text, score, float(weight))
        for template, score, weight in zip(templates, scores, prompt_weights(scores), strict=True)
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


def that_fit(lm: LanguageModel, templates: Sequence[PromptTemplate], pattern: Pattern) -> list[PromptTemplate]:
    """Return the prompts that `lm` can take. Raises BadPrompt if there is none."""
    fitting = [template for template in templates if fits(lm, lm.encode_prompt(template), pattern)]
    if not fitting:
        check_fits(lm, templates[0], pattern)
    return fitting


def check_fits(lm: LanguageModel, template: PromptTemplate, pattern: Pattern) -> None:
    """Raise BadPrompt if `lm` cannot take the prompt with entities of so many tokens."""
    if not fits(lm, lm.encode_prompt(template), pattern):
        raise BadPrompt(
            f"The prompt {template.text!r} with {sum(pattern)} tokens of entities exceeds the {lm.max_tokens} tokens "
            "that this LM takes; shorten it."
        )


def fits(lm: LanguageModel, prompt: EncodedPrompt, pattern: Pattern) -> bool:
    all_but_the_last = sum(pattern) + len(pattern) * len(lm.entity_end) - 1
    try:
        lm.query(prompt, pattern, (0,) * all_but_the_last)
    except BadPrompt:
        return False
    return True


def left_out(spec: HarvestSpec, templates: Sequence[PromptTemplate]) -> str | None:
    """Return the notice that ready prompts were too long for the LM."""
    n_given = len(set(spec.prompts)) if spec.setting not in WITHOUT_READY_PROMPTS else 0
    if n_given <= len(templates):
        return None
    return f"{n_given - len(templates)} of {n_given} ready prompts were left out: they are too long for this LM."


# -- prompts that are learned ------------------------------------------------------------------------------------------


def weighed_by_likelihood(choice: Choice) -> AskedPrompts:
    """LPAQA: all prompts, with the weights under which their product makes the seed tuples likeliest."""
    lm, templates = choice.masked_lm, all_prompts(choice)
    prompts = tuple(lm.encode_prompt(template) for template in templates)
    report = Reporter(choice.on_progress, "weights", len(prompts))
    tick = partial(report, 0)
    asked = [[one for seed in choice.seeds for one in asked_of(lm, prompt, seed)] for prompt in prompts]  # (K, Q)
    queries = [question.query for questions in zip(*asked, strict=True) for question in questions]
    vectors = lm.vectors(queries, choice.spec.params.batch_size, tick).view(
        len(asked[0]), len(prompts), -1
    )  # (Q, K, d)
    targets = torch.tensor([question.targets[0] for question in asked[0]])
    prompt_set = PromptSet(prompts, lpaqa.optimised_weights(lm, vectors, targets, tick))
    return described(choice, prompt_set, [template.text for template in templates], templates)


def asked_of(lm: MaskedLM, prompt: EncodedPrompt, seed: Encoded) -> list[Question]:
    return step_by_step(lm, prompt, seed, tuple(map(len, seed)))


def triggers(choice: Choice) -> AskedPrompts:
    """AutoPrompt as BertNet adapts it: the best trigger tokens for the compatibility of the seed tuples.

    Searched twice: from masks between the entities, and from the words of the initial prompts.
    """
    lm, seeds = choice.masked_lm, choice.seeds
    gaps = ((TRIGGER,) * N_TRIGGERS,) * (len(seeds[0]) - 1)
    between = TriggerTemplate((lm.tokens.prefix, *gaps, lm.tokens.suffix), tuple(range(len(seeds[0]))))
    initial = [lm.encode_prompt(template) for template in initial_prompts(choice)]
    in_words = [(template, words) for template, words in (as_triggers(lm, prompt) for prompt in initial) if words]
    starts = [(between, (lm.mask_id,) * between.n_triggers), *in_words]
    examples = [Example(seed) for seed in seeds]
    allowed = autoprompt.allowed_triggers(lm, {token for seed in seeds for entity in seed for token in entity})
    # A handful of seed tuples leaves none for dev.
    task = TriggerTask(Compatibility(choice.spec.params.alpha), examples, examples, allowed)
    params = replace(TRIGGER_SEARCH, seed=choice.spec.params.seed)
    searches = [
        autoprompt.search_trigger(lm, template, start, task, params, choice.on_progress) for template, start in starts
    ]
    prompt = max(searches, key=lambda found: found.dev_score).prompt
    text = readable(lm, prompt, [])
    return described(choice, PromptSet((prompt,), (1.0,)), [text], [PromptTemplate.parse(text)])


def as_triggers(lm: MaskedLM, prompt: EncodedPrompt) -> tuple[TriggerTemplate, TokenIds]:
    """Return `prompt` with a trigger for every token but special ones, and those tokens."""
    words = tuple(token for segment in prompt.segments for token in segment if lm.continues_entity[token])
    segments = [
        tuple(TRIGGER if lm.continues_entity[token] else token for token in segment) for segment in prompt.segments
    ]
    return TriggerTemplate(tuple(segments), prompt.slots), words


def soft(choice: Choice) -> AskedPrompts:
    """Soft prompts that start as all prompts, whose mixture maximises the likelihood of the seed tuples."""
    lm, templates = choice.masked_lm, all_prompts(choice)
    softened, vectors = soft_prompts.soften(lm, [lm.encode_prompt(template) for template in templates])
    params = soft_prompts.SoftPromptParams(
        learning_rate=SOFT_LEARNING_RATE, epochs=SOFT_EPOCHS, seed=choice.spec.params.seed
    )
    prompt_set = soft_prompts.learn_on_tuples(lm, softened, vectors, choice.seeds, params, choice.on_progress)
    words = nearest_words(lm, vectors)
    return described(choice, prompt_set, [readable(lm, prompt, words) for prompt in softened], templates)


def described(
    choice: Choice, prompt_set: PromptSet, texts: Sequence[str], templates: Sequence[PromptTemplate]
) -> AskedPrompts:
    """Say of a learned prompt set what people want to know of it."""
    reader = prompt_set.reader(choice.lm)
    scores = mean_compatibilities(reader, prompt_set.prompts, choice.seeds, choice.spec.params, choice.on_progress)
    weighted = [
        WeightedPrompt(text, float(score), weight, prompt.segments)
        for text, score, weight, prompt in zip(texts, scores, prompt_set.weights, prompt_set.prompts, strict=True)
    ]
    return AskedPrompts(prompt_set, tuple(weighted), tuple(templates), left_out(choice.spec, templates))


CHOOSE: dict[str, Callable[[Choice], AskedPrompts]] = {
    "human": human,
    "top1": top1,
    "multi": multi,
    "lpaqa": weighed_by_likelihood,
    "autoprompt": triggers,
    "soft": soft,
}
