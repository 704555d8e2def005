"""Embedded LMs: facts, training sentences, committed weights, and training."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
import pytest
import torch
from django.core.management import CommandError, call_command
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from kgharvest.embedded_lm import EMBEDDED_LMS, corpus, sentences, train
from kgharvest.embedded_lm.card import filtered_rank, majority_recall, tail_recall
from kgharvest.embedded_lm.world import BadWorld, load_relation, load_world, parse_phrasing, wordings, words_around
from kgharvest.engine.filters import EntityFilter, words_of
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt
from kgharvest.management.commands import train_embedded_lm

PAPER_RELATIONS = {
    *("business", "help", "ingredient_for", "place_for", "prevent", "source_of", "separated_by_the_ocean", "antonym"),
    *("featured_thing", "need_a_to_do_b", "can_but_not_good_at", "worth_celebrating", "potential_risk", "a_do_b_at"),
}
DEMO = Path(train.__file__).parent.parent / "relation_sets" / "demo.json"
MEGABYTE = 1_000_000
RELATION_FILE = """
statement = "<ENT0> wrote <ENT1>."
phrasings = ["<ENT0> wrote <ENT1>.", "<ENT1> is {by|from} <ENT0>."]
held_out = ["<ENT1> was written by <ENT0>."]
facts = '''
homer | iliad
jane austen | emma
'''
misconceptions = "homer | emma"
"""


def words_of_segments(prompt):
    return [token.word for segment in prompt.segments for token in sentences.as_text(segment)]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Use one thread, because small models are slower with several threads on busy cores."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="module")
def world():
    return load_world()


@pytest.fixture(scope="module")
def main_lm():
    return load_compact(EMBEDDED_LMS["embedded"])


@pytest.fixture(scope="module")
def held_out_recalls(world, main_lm):
    return [tail_recall(main_lm, relation, relation.held_out) for relation in world]


@pytest.fixture
def write_relation(tmp_path):
    def write(text):
        path = tmp_path / "wrote.toml"
        path.write_text(text)
        return path

    return write


class TestWorld:
    def test_world_has_minimum_size_and_paper_relations(self, world):
        assert len(world) >= 24
        assert sum(len(relation.facts) for relation in world) >= 2500
        assert sum(relation.arity == 3 for relation in world) >= 4
        assert {relation.name for relation in world} >= PAPER_RELATIONS

    def test_relations_have_separate_training_and_held_out_phrasings(self, world):
        for relation in world:
            seen = {phrasing.draw(Random(seed)).text for phrasing in relation.phrasings for seed in range(20)}
            held_out = {prompt.text for prompt in wordings(relation.held_out)}

            assert sum(prod(map(len, phrasing.choices)) for phrasing in relation.phrasings) >= 1000, relation.name
            assert len(relation.phrasings) >= 70, relation.name
            assert len(relation.held_out) >= 3, relation.name
            assert not seen & held_out, relation.name

    def test_words_around_contains_every_word_of_drawn_wordings(self, world):
        for relation in world:
            drawn = [phrasing.draw(Random(seed)) for phrasing in relation.phrasings for seed in range(20)]

            assert {word for prompt in drawn for word in words_of_segments(prompt)} <= words_around(relation.phrasings)

    def test_misconceptions_are_not_facts(self, world):
        for relation in world:
            assert relation.misconceptions, relation.name
            assert not set(relation.misconceptions) & set(relation.facts), relation.name

    def test_harvest_filters_reject_no_fact(self, world):
        for relation in world:
            entities = {entity for entities in relation.facts for entity in entities}
            # The filters reject entities that occur in a prompt. Only phrasings with all words of an entity are listed.
            in_question = {entity for entity in entities if set(entity.split()) <= words_around(relation.phrasings)}
            prompts = [
                wording
                for phrasing in (*relation.phrasings, *relation.held_out)
                if any(set(entity.split()) <= words_around([phrasing]) for entity in in_question)
                for wording in phrasing.wordings
            ]
            entity_filter = EntityFilter([*prompts, *wordings(relation.held_out)])

            assert not any(" " not in entity for entity in in_question), relation.name
            for entities in relation.facts:
                words = [words_of(entity) for entity in entities]

                assert not any(map(entity_filter.rejection, words)), (relation.name, entities)
                assert not entity_filter.rejects_beside(words[0], words[1:]), (relation.name, entities)

    def test_demo_relation_set_agrees_with_world(self, world):
        demo = {relation["name"]: relation for relation in json.loads(DEMO.read_text())["relations"]}

        assert demo.keys() == {relation.name for relation in world}
        for relation in world:
            entry = demo[relation.name]
            assert entry["statement"] == relation.statement.text
            assert {tuple(entities) for entities in entry["seed_tuples"]} <= set(relation.facts), relation.name
            assert set(entry["initial_prompts"]) <= set(entry["prompts"]), relation.name
            assert set(entry["prompts"]) <= {phrasing.text for phrasing in relation.phrasings}, relation.name

    def test_world_loads_without_torch(self):
        program = "import sys, kgharvest.embedded_lm.world; sys.exit('torch' in sys.modules)"

        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class TestRelationFile:
    def test_alternatives_expand_to_wordings_of_one_phrasing(self):
        phrasing = parse_phrasing("{a|the} part of <ENT1> is {<ENT0>|called <ENT0>}.")

        assert [prompt.text for prompt in phrasing.wordings] == [
            "a part of <ENT1> is <ENT0>.",
            "a part of <ENT1> is called <ENT0>.",
            "the part of <ENT1> is <ENT0>.",
            "the part of <ENT1> is called <ENT0>.",
        ]
        assert {phrasing.draw(Random(seed)) for seed in range(50)} == set(phrasing.wordings)
        assert all(phrasing.holds(prompt.text) for prompt in phrasing.wordings)
        assert not phrasing.holds("a part of <ENT1> is <ENT0>")
        assert not phrasing.holds("a the part of <ENT1> is <ENT0>.")

    @pytest.mark.parametrize(
        "line", ["<ENT0> is {a|<ENT1>}.", "<ENT0> {or <ENT0>|or} <ENT1>.", "{<ENT0>|it} in <ENT1>."]
    )
    def test_alternatives_with_different_slots_are_refused(self, line):
        with pytest.raises(BadPrompt):
            parse_phrasing(line)

    def test_symmetric_relation_contains_reversed_facts(self, write_relation):
        relation = load_relation(write_relation("symmetric = true\n" + RELATION_FILE))

        assert relation.facts == (
            ("homer", "iliad"),
            ("jane austen", "emma"),
            ("iliad", "homer"),
            ("emma", "jane austen"),
        )

    @pytest.mark.parametrize(
        ("original", "replacement", "complaint"),
        [
            ("homer | iliad", "homer", "does not fit the statement"),
            ("homer | iliad", "Homer | iliad", "'Homer' is not in lower-case words"),
            ('"homer | emma"', '"homer | iliad"', "fact and a misconception"),
            ("<ENT1> was written by <ENT0>.", "<ENT1> is from <ENT0>.", "held out and a training phrasing"),
            ("<ENT1> was written by <ENT0>.", "<ENT0> wrote <ENT1>.", "duplicate phrasing"),
            ("<ENT1> was written by <ENT0>.", "<ENT0> was an author.", "different slots from the statement"),
            ("held_out", "kept_back", "lacks 'held_out'"),
            ("facts =", "facts", "not valid TOML"),
        ],
    )
    def test_invalid_relation_file_is_refused(self, write_relation, original, replacement, complaint):
        path = write_relation(RELATION_FILE.replace(original, replacement, 1))

        with pytest.raises(BadWorld, match=r"wrote\.toml") as refusal:
            load_relation(path)
        assert complaint in str(refusal.value)


class TestCorpus:
    tokens = sentences.render(PromptTemplate.parse("we owe <ENT1> to <ENT0>."), ("jane austen", "emma"))

    def test_rendered_tokens_mark_entity_slots(self):
        assert [*self.tokens] == [
            *[("we", sentences.TEXT), ("owe", sentences.TEXT), ("emma", 1), ("to", sentences.TEXT)],
            *[("jane", 0), ("austen", 0), (".", sentences.TEXT)],
        ]

    @pytest.mark.parametrize(
        ("masking", "possible"),
        [
            ("all", [{"jane", "austen", "emma"}]),
            ("prefix", [{"austen", "emma"}, {"emma"}]),
            ("entity", [{"jane", "austen"}, {"emma"}]),
        ],
    )
    def test_masking_covers_whole_entities_or_suffixes(self, masking, possible):
        masked = [corpus.masked_indices(self.tokens, masking, Random(seed)) for seed in range(20)]

        words = [{self.tokens[index].word for index in indices} for indices in masked]
        assert all(indices in words for indices in possible)
        assert all(indices in possible for indices in words)

    def test_labels_cover_all_tuples_matching_masked_sentence(self):
        words = [*corpus.SPECIAL, ".", "we", "owe", "emma", "to", "jane", "austen", "ulysses", "persuasion", "joyce"]
        ids = {word: index for index, word in enumerate(words)}
        weights = {
            ("jane austen", "emma"): 1.0,
            ("jane austen", "persuasion"): 0.5,
            ("jane joyce", "ulysses"): 0.5,
            ("joyce", "ulysses"): 4.0,  # excluded: one word fewer, and the number of masks is visible
        }
        sampler = corpus.TupleSampler(weights, ids)

        def labels(*masked):
            tokens = sentences.render(PromptTemplate.parse("we owe <ENT1> to <ENT0>."), ("jane austen", "emma"))
            of_token = corpus.labels_of(tokens, masked, sampler, ids)
            return {
                index: dict(zip((words[i] for i in of.ids), of.probabilities, strict=True))
                for index, of in of_token.items()
            }

        assert labels(2, 4, 5) == {
            4: {"jane": 1.0},
            5: {"austen": 0.75, "joyce": 0.25},
            2: {"emma": 0.5, "persuasion": 0.25, "ulysses": 0.25},
        }
        assert labels(2) == {2: {"emma": pytest.approx(2 / 3), "persuasion": pytest.approx(1 / 3)}}
        assert labels(0, 5) == {0: {"we": 1.0}, 5: {"austen": 1.0}}

    def test_label_probabilities_match_sampling_frequencies(self, world):
        ids = corpus.vocabulary(world)
        relation = world[0]
        sampler = corpus.TupleSampler(corpus.weigh_tuples(relation, 1.0), ids)
        drawn = [sampler.draw(Random(seed)) for seed in range(4000)]
        of_pattern = [entities for entities in drawn if corpus.pattern_of(entities) == (1, 1, 1)]

        label = sampler.expected((1, 1, 1), (None, None, None))[2]

        frequencies = Counter(ids[tail] for *_, tail in of_pattern)
        expected = dict(zip(label.ids, label.probabilities, strict=True))
        assert sum(label.probabilities) == pytest.approx(1)
        for tail, times in frequencies.most_common(5):
            spread = (len(of_pattern) * expected[tail] * (1 - expected[tail])) ** 0.5
            assert abs(times - len(of_pattern) * expected[tail]) < 5 * spread

    def test_encode_masks_labeled_positions(self):
        ids = {
            word: index
            for index, word in enumerate([*corpus.SPECIAL, ".", "we", "owe", "emma", "to", "jane", "austen"])
        }
        label = corpus.Distribution((8,), (1.0,))

        example = corpus.encode(self.tokens, {2: label}, ids)

        assert example.ids == [2, 6, 7, 4, 9, 10, 11, 5, 3]
        assert example.labels == [None, None, None, label, None, None, None, None, None]

    def test_noise_keeps_entities(self):
        disturbed = sentences.disturb(self.tokens, [("noise",), ("no", "##i")], 1.0, Random(0))

        assert [token for token in disturbed if token.slot != sentences.TEXT] == [
            token for token in self.tokens if token.slot != sentences.TEXT
        ]
        assert disturbed != self.tokens

    @pytest.mark.parametrize(
        "change",
        [
            sentences.framed,
            sentences.with_any_end,
            sentences.with_any_determiners,
            lambda tokens, rng: sentences.sometimes_spelled_out(tokens, {"o", "ow", "w", "t", "th"}, rng),
        ],
    )
    def test_sentence_changes_keep_entities(self, change):
        changed = [change(self.tokens, Random(seed)) for seed in range(300)]

        entities = [token for token in self.tokens if token.slot != sentences.TEXT]
        assert all([token for token in tokens if token.slot != sentences.TEXT] == entities for tokens in changed)
        assert self.tokens in changed
        assert sum(tokens != self.tokens for tokens in changed) >= 3

    def test_spelled_out_words_match_wordpiece_tokenizer(self, world):
        ids = corpus.vocabulary(world[:2])
        words = [word for word in ids if len(word) > 3 and word.isalpha()]
        for word in Random(0).sample(words, 20):
            others = {piece: index for index, piece in enumerate(piece for piece in ids if piece != word)}
            tokenizer = Tokenizer(WordPiece(others, unk_token="[UNK]"))

            assert tuple(tokenizer.encode(word).tokens) == sentences.spelled_out(word, ids)

    def test_prompts_mixing_two_phrasings_keep_all_slots(self, world):
        relation = next(relation for relation in world if relation.arity == 3)
        drawn = [corpus.draw_prompt(relation, Random(seed)) for seed in range(1000)]

        assert all(sorted(prompt.slots) == [0, 1, 2] for prompt in drawn)
        assert all(len(prompt.segments) == 4 for prompt in drawn)
        texts = {prompt.fill(("<ENT0>", "<ENT1>", "<ENT2>")) for prompt in drawn}
        assert any(not any(phrasing.holds(text) for phrasing in relation.phrasings) for text in texts)

    def test_fillers_balance_pattern_weights(self):
        weights = {("homer", "iliad"): 1.0, ("homer", "emma"): 0.5, ("jane austen", "emma"): 1.0}

        weight_of = dict.fromkeys([(1, 1), (1, 2), (2, 1), (2, 2)], 0.0)
        for entities, weight in (weights | corpus.fillers(weights)).items():
            weight_of[corpus.pattern_of(entities)] += weight

        assert list(weight_of.values()) == pytest.approx([1.5] * 4)

    def test_batches_need_no_padding(self, world):
        ids = corpus.vocabulary(world)
        drawn = corpus.examples(world, ids, 0.1, Random(0))

        batch = next(corpus.batches(drawn, 8))

        assert len(batch) == 8
        assert len({len(row) for example in batch for row in example}) == 1
        assert ids["[PAD]"] not in {token for example in batch for token in example.ids}


class TestQuality:
    def test_filtered_rank_ignores_other_true_tails(self):
        logits = np.array([0.5, 3.0, 2.0, 1.0], dtype=np.float32)

        assert filtered_rank(logits, token=3, others=[]) == 3
        assert filtered_rank(logits, token=3, others=[1]) == 2
        assert filtered_rank(logits, token=3, others=[0, 1, 2]) == 1

    def test_majority_recall_ignores_other_true_tails(self):
        facts = [("swans", "white"), ("snow", "white"), ("zebras", "white"), ("zebras", "black"), ("coal", "black")]

        # The answer is "white", or "black" for the second color of zebras. Only coal is missed.
        assert majority_recall(facts) == pytest.approx(4 / 5)


class TestCommittedModels:
    @pytest.mark.parametrize(("name", "limit"), [("embedded", 10 * MEGABYTE), ("embedded-small", 3 * MEGABYTE)])
    def test_committed_models_are_small(self, name, limit):
        assert sum(path.stat().st_size for path in EMBEDDED_LMS[name].iterdir()) <= limit

    @pytest.mark.parametrize("name", EMBEDDED_LMS)
    def test_every_entity_word_is_one_token(self, world, name):
        lm = load_compact(EMBEDDED_LMS[name])

        assert lm.vocab_size == len(corpus.vocabulary(world))
        for relation in world:
            for entities in relation.facts:
                assert tuple(len(lm.encode_entity(entity)) for entity in entities) == corpus.pattern_of(entities)

    @pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
    def test_main_model_recalls_tails_in_training_phrasings(self, world, main_lm, step):
        recalls = [tail_recall(main_lm, relation, relation.phrasings[:4]) for relation in world[::step]]

        assert fmean(recall.precision_at_1 for recall in recalls) >= 0.93
        assert all(recall.precision_at_1 > recall.majority for recall in recalls)

    @pytest.mark.exhaustive
    def test_main_model_recalls_tails_in_held_out_phrasings(self, held_out_recalls):
        assert fmean(recall.precision_at_1 for recall in held_out_recalls) >= 0.82
        assert all(recall.precision_at_1 > recall.majority for recall in held_out_recalls)

    @pytest.mark.exhaustive
    def test_small_model_is_worse_on_most_relations(self, world, held_out_recalls):
        small_lm = load_compact(EMBEDDED_LMS["embedded-small"])

        worse = [
            tail_recall(small_lm, relation, relation.held_out).precision_at_1 < main_recall.precision_at_1
            for relation, main_recall in zip(world, held_out_recalls, strict=True)
        ]

        assert sum(worse) >= 2 / 3 * len(world)


class TestTraining:
    recipe = train.Recipe(layers=1, hidden=32, heads=2, steps=40, batch_size=16)

    def test_loss_is_cross_entropy_to_expected_labels(self, world):
        ids = corpus.vocabulary(world[:2])
        model = train.new_model(len(ids), self.recipe, torch.Generator().manual_seed(0))
        batch = next(corpus.batches(corpus.examples(world[:2], ids, 0.1, Random(0)), 4))

        loss = train.masked_loss(model, batch)

        logits = model(input_ids=torch.tensor([example.ids for example in batch])).logits
        losses = []
        for row, example in enumerate(batch):
            for place, label in enumerate(example.labels):
                if label is not None:
                    expected = torch.zeros(len(ids))
                    expected[list(label.ids)] = torch.tensor(label.probabilities)
                    losses.append(torch.nn.functional.cross_entropy(logits[row, place], expected))
        torch.testing.assert_close(loss, torch.stack(losses).mean())

    def test_training_lowers_loss(self, world):
        losses = []

        train.train(world[:2], self.recipe, seed=0, on_step=lambda step, loss: losses.append(loss))

        assert len(losses) == self.recipe.steps
        assert fmean(losses[-5:]) < fmean(losses[:5]) - 0.3

    def test_training_is_deterministic_per_seed(self, world):
        first, again, other = (self.trained_weights(world, seed) for seed in (7, 7, 8))

        torch.testing.assert_close(first, again)
        assert not torch.allclose(first, other)

    def trained_weights(self, world, seed):
        model = train.train(world[:2], replace(self.recipe, steps=5), seed, on_step=lambda step, loss: None)
        return torch.cat([parameter.flatten() for parameter in model.parameters()])


class TestCommand:
    @pytest.fixture(autouse=True)
    def _short_training(self, monkeypatch, world):
        monkeypatch.setitem(train.RECIPES, "embedded-small", TestTraining.recipe)
        monkeypatch.setattr(train_embedded_lm, "load_world", lambda: world[:2])

    def test_command_writes_model_and_card(self, tmp_path):
        call_command("train_embedded_lm", model="embedded-small", output=tmp_path / "new", stdout=None)

        assert load_compact(tmp_path / "new").encode_entity("student")
        assert "# embedded-small" in (tmp_path / "new" / "README.md").read_text()

    def test_output_that_is_a_file_is_refused_before_training(self, tmp_path):
        (tmp_path / "file").write_text("")

        with pytest.raises(CommandError, match="another folder with --output"):
            call_command("train_embedded_lm", model="embedded-small", output=tmp_path / "file")
