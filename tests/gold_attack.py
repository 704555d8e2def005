"""Attack on gold: accounts of one group compare the statements that they receive.

`play` lets a group and other annotators judge a round through the services that pages and the API use. `clues` returns
the features by which the group could tell gold from other statements. Used by tests and benches/gold_disclosure.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from random import Random
from uuid import UUID

from django.utils import timezone
from scipy.stats import mannwhitneyu

from annotation.judging.api import statements_of
from annotation.judging.assignment import next_batch, release_batch, start_position
from annotation.judging.judgments import Answer, reassign_skipped, skip_task, submit_judgment
from annotation.models import Annotator, Round
from kgharvest.errors import DomainError

LABELS = ("true", "false", "unjudgeable")


class Account:
    """One account of the group. order: tasks in the order of their first view.

    steps: times of all views by task. A statement is viewed again if it returns after it was skipped or released.
    sizes: size of the reply without the text of the statement, by task. ahead: tasks of the last reply.
    """

    def __init__(self, annotator: Annotator):
        self.annotator = annotator
        self.order: list[int] = []
        self.place_in_reply: dict[int, int] = {}
        self.steps: defaultdict[int, list[int]] = defaultdict(list)
        self.sizes: dict[int, int] = {}
        self.skipped: set[int] = set()
        self.ahead: list[int] = []

    def fetch(self, step: int) -> list[int]:
        tasks = next_batch(self.annotator, timezone.now())
        for place, (task, statement) in enumerate(zip(tasks, statements_of(self.annotator, tasks), strict=True)):
            if task.pk not in self.steps:
                self.order.append(task.pk)
                self.place_in_reply[task.pk] = place
                self.sizes[task.pk] = len(str(statement)) - sum(len(text) for text, _ in statement["parts"])
            if task.pk not in self.ahead:
                self.steps[task.pk].append(step)
        self.ahead = [task.pk for task in tasks]
        return self.ahead


def play(round: Round, size: int, strategy: str, n_others: int, seed: int) -> list[Account]:
    """Let a group of `size` accounts and `n_others` annotators judge until nobody receives statements.

    judge: the accounts answer every statement. skip: they skip until the limit, then release their statements and
    request new ones, and never answer. mixed: they answer, skip, release, and change answers at random.
    """
    random = Random(seed)
    annotators = [
        Annotator.objects.create(
            round=round, code=f"{seed}-{number}", token_key=f"{seed:016}{number:016}", trained_at=timezone.now(),
            next_position=start_position(round, f"{seed}-{number}"),
        )
        for number in range(size + n_others)
    ]  # fmt: skip
    group = [Account(annotator) for annotator in annotators[:size]]
    active: list[Account | Annotator] = [*group, *annotators[size:]]
    turns, step = 30 * round.n_tasks, 0
    while active and step < turns:
        step += 1
        player = random.choice(active)
        is_active = act(player, strategy, random, step) if isinstance(player, Account) else answer_one(player, random)
        if not is_active:
            active.remove(player)
    return group


def answer_one(annotator: Annotator, random: Random) -> bool:
    batch = next_batch(annotator, timezone.now())
    if batch:
        submit(annotator, batch[0].pk, random)
    return bool(batch)


def submit(annotator: Annotator, task: int, random: Random) -> None:
    uuid = UUID(int=random.getrandbits(128), version=4)
    submit_judgment(annotator, Answer(task, random.choices(LABELS, [6, 3, 1])[0], uuid), timezone.now())


def act(account: Account, strategy: str, random: Random, step: int) -> bool:
    """Do one action of an account of the group. Return False if the account can learn no more."""
    ahead = account.fetch(step)
    if not ahead:
        return strategy == "mixed" and bool(reassign_skipped(account.annotator))
    chance = random.random()
    if strategy == "judge" or (strategy == "mixed" and chance < 0.6):
        submit(account.annotator, ahead[0], random)
    elif strategy == "skip" or chance < 0.9:
        try:
            skip_task(account.annotator, ahead[0])
            account.skipped.add(ahead[0])
        except DomainError:
            n_seen = len(account.order)
            reassign_skipped(account.annotator)
            release_batch(account.annotator)
            account.fetch(step)
            return strategy == "mixed" or len(account.order) > n_seen
    elif account.order:
        submit(account.annotator, random.choice(account.order), random)  # late, or changes an answer
    return True


Features = defaultdict[str, defaultdict[int, list[float]]]  # values by feature and task


def clues(group: list[Account], k: int) -> dict[str, dict[int, float]]:
    """Return the mean value of each feature by task, for the tasks that the group received."""
    seen_by: defaultdict[int, list[int]] = defaultdict(list)
    for number, account in enumerate(group):
        for task in account.order:
            seen_by[task].append(number)
    features: Features = defaultdict(lambda: defaultdict(list))
    for task, members in seen_by.items():
        features["accounts"][task] = [len(members)]
        features["more than k accounts"][task] = [len(members) > k]
        features["exactly k accounts"][task] = [len(members) == k]
        features["views"][task] = [sum(len(group[number].steps[task]) for number in members)]
        features["skipped by"][task] = [sum(task in group[number].skipped for number in members)]
    for account in group:
        add_clues_of_account(features, account, seen_by)
    for one, other in combinations(group, 2):
        add_clues_of_pair(features, one, other)
    return {
        name: {task: sum(values) / len(values) for task, values in by_task.items()}
        for name, by_task in features.items()
    }


def add_clues_of_account(features: Features, account: Account, seen_by: Mapping[int, list[int]]) -> None:
    tokens = sorted(account.annotator.token_of(task) for task in account.order)
    last_common = -1
    for rank, task in enumerate(account.order):
        features["rank"][task].append(rank)
        features["place in the reply"][task].append(account.place_in_reply[task])
        features["id"][task].append(tokens.index(account.annotator.token_of(task)))
        features["size"][task].append(account.sizes[task])
        features["time"][task].append(account.steps[task][0])
        features["returned after"][task].append(account.steps[task][-1] - account.steps[task][0])
        if len(seen_by[task]) > 1:
            features["since the last common statement"][task].append(rank - last_common)
            last_common = rank


def add_clues_of_pair(features: Features, one: Account, other: Account) -> None:
    ranks = {task: rank for rank, task in enumerate(other.order)}
    common = [(rank, task) for rank, task in enumerate(one.order) if task in ranks]
    places = [ranks[task] for _, task in common]
    for position, ((rank, task), place) in enumerate(zip(common, places, strict=True)):
        features["rank difference"][task].append(abs(rank - place))
        before, after = places[:position], places[position + 1 :]
        n_inverted = sum(earlier > place for earlier in before) + sum(later < place for later in after)
        features["inverted pairs"][task].append(n_inverted)
        features["time between views"][task].append(abs(one.steps[task][0] - other.steps[task][0]))
        near = set(one.order[max(rank - 1, 0) : rank + 2]) & set(other.order[max(place - 1, 0) : place + 2])
        features["same neighbors"][task].append(len(near))


def areas(features: Mapping[str, Mapping[int, float]], gold: Iterable[int]) -> dict[str, float]:
    """Return, by feature, the area under the ROC curve for telling gold from other statements.

    Features without values for both kinds are omitted.
    """
    gold, areas = set(gold), {}
    for name, by_task in features.items():
        of_gold = [value for task, value in by_task.items() if task in gold]
        of_others = [value for task, value in by_task.items() if task not in gold]
        if of_gold and of_others:
            areas[name] = float(mannwhitneyu(of_gold, of_others).statistic / (len(of_gold) * len(of_others)))
    return areas
