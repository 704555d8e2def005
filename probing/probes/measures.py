"""Let methods learn on one protocol and measure what they have learned. Loads no LM, but torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

from kgharvest.engine.language_models.base import Tick
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import Fact, ProbeScores, UsableFacts, probe, usable_facts
from kgharvest.engine.prompt_learning.methods import FOR_ALL_RELATIONS, Budget, Learned, ProbeTask, learn
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer
from kgharvest.engine.prompts.template import parse_prompts
from probing.probes.facts import PARTS, NotProbed, ProbeRelation

Teach = Callable[[MaskedLM, str, Sequence[ProbeTask]], list[Learned]]  # LM, method and tasks to what is learned


class Cell(NamedTuple):
    """What a method learns at once: one relation, or all of them; is_control: of the LM with random weights."""

    method: str
    tasks: Sequence[ProbeTask]
    is_control: bool

    @property
    def name(self) -> str:
        of = self.tasks[0].relation if len(self.tasks) == 1 else f"{len(self.tasks)} relations"
        return f"{self.method}, {of}{', random weights' if self.is_control else ''}"


class Cost(NamedTuple):
    """Of learning: sequences that the LM read, and how long it took."""

    forwards: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """A method on one relation. test, dev: where it ranks the right objects of these facts."""

    cell: Cell
    task: ProbeTask
    learned: Learned
    test: ProbeScores
    dev: ProbeScores
    cost: Cost


def probe_task(lm: MaskedLM, relation: ProbeRelation, vocabulary: Sequence[int] | None = None) -> ProbeTask:
    """Raises NotProbed if nothing can be learned or asked, BadPrompt for a prompt that the LM cannot take."""
    encoded = tuple(lm.encode_prompt(template) for template in parse_prompts(relation.prompts, 2))
    facts = {part: usable_facts(lm, [Fact(*pair) for pair in relation.facts[part]], vocabulary) for part in PARTS}
    for part, later in combinations(PARTS, 2):
        facts[part] = facts[part].without(facts[later], f"also a fact of {later}")
    for part, usable in facts.items():
        if not usable.facts:
            raise NotProbed(f"{relation.name}: no fact of {part} can be asked ({reasons(usable)}); give others.")
    return ProbeTask(relation.name, encoded[0], encoded, **facts)


def reasons(facts: UsableFacts) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in facts.left_out.items()) or "it is empty"


def cells_of(methods: Iterable[str], tasks: Sequence[ProbeTask], controls: Sequence[bool]) -> Iterator[Cell]:
    """Yield what is to be measured, each with its control. controls: False, and True if wanted."""
    for method in methods:
        for group in [tasks] if method in FOR_ALL_RELATIONS else [[task] for task in tasks]:
            for is_control in controls:
                yield Cell(method, group, is_control)


def measure(
    lm: MaskedLM,
    cell: Cell,
    teach: Teach,
    vocabulary: Sequence[int] | None = None,
    tick: Tick = lambda: None,
) -> list[Measured]:
    """Return how the cell's method does on each of its tasks; what they cost together is divided among them.

    tick: called before everything that the LM computes. vocabulary: among which ranks are counted, None being all.
    """
    with lm.ticking(tick):
        start, before = perf_counter(), lm.n_read["sequences"]
        learned = teach(lm, cell.method, cell.tasks)
        cost = Cost((lm.n_read["sequences"] - before) // len(cell.tasks), (perf_counter() - start) / len(cell.tasks))
        return [
            Measured(cell, task, one, probe(one.answerer, task.test, vocabulary), probe(one.answerer, task.dev), cost)
            for task, one in zip(cell.tasks, learned, strict=True)
        ]


def record_of(measured: Measured) -> dict[str, Any]:
    """Return the columns of a ProbeRecord but its relation, which stands as its name."""
    learned, task, test = measured.learned, measured.task, measured.test
    return {
        "relation": task.relation,
        "method": measured.cell.method,
        "is_control": measured.cell.is_control,
        **{f"n_{part}": len(getattr(task, part).facts) for part in PARTS},
        "left_out": {part: getattr(task, part).left_out for part in PARTS},
        "p1": test.precision_at(1),
        "p10": test.precision_at(10),
        "mrr": test.mrr,
        "nll": test.nll,
        "dev_nll": measured.dev.nll,
        "n_prompts": len(learned.weights),
        "effective_prompts": round(learned.effective_prompts, 3) if learned.weights else None,
        "n_parameters": learned.n_parameters,
        **measured.cost._asdict(),
        **({"combine": asked.combine, "temperature": asked.temperature} if (asked := prompt_set_of(learned)) else {}),
    }


def prompt_set_of(learned: Learned) -> PromptSet | None:
    """Return the prompts that were learned or weighed, None for a method that learns something else."""
    return learned.answerer.prompt_set if isinstance(learned.answerer, PromptSetAnswerer) else None


def probe_records(
    lm: MaskedLM,
    control: MaskedLM | None,
    relations: Sequence[ProbeRelation],
    methods: Sequence[str],
    budget: Budget,
) -> Iterator[dict[str, Any]]:
    """Yield a record of each method and relation, and of its control: the same LM before any training."""
    tasks = [probe_task(lm, relation) for relation in relations]
    for cell in cells_of(methods, tasks, [False, True] if control else [False]):
        subject = control if control and cell.is_control else lm
        yield from map(record_of, measure(subject, cell, partial(learn, budget=budget)))
