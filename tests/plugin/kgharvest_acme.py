"""Example of a package that extends kgharvest by entry points: an LM family, a prompt setting, and an export."""

from kgharvest.engine.settings import Setting
from kgharvest.tables.formats import Format


def find_family(config, tokenizer):
    """Return the family for LMs whose config.json has the key `acme_first_letter`."""
    if not hasattr(config, "acme_first_letter"):
        return None
    from transformers import AutoModelForMaskedLM

    from kgharvest.engine.language_models.masked import MaskedLM

    class AcmeLM(MaskedLM):
        """A masked LM that proposes only entities with a given first letter."""

        def __init__(self, model, tokenizer, name, revision):
            super().__init__(model, tokenizer, name, revision)
            tokens = tokenizer.convert_ids_to_tokens(range(self.vocab_size))
            for index, token in enumerate(tokens):
                self.starts_entity[index] &= token.startswith(config.acme_first_letter)

    return AutoModelForMaskedLM, AcmeLM


def indeed(source):
    """Prompt strategy: the first initial prompt after the word "indeed"."""
    from kgharvest.engine.prompts.strategies import weigh_by_compatibility
    from kgharvest.engine.prompts.template import PromptTemplate

    return weigh_by_compatibility(source, [PromptTemplate.parse(f"indeed , {source.spec.initial_prompts[0]}")])


SETTING = Setting("acme", "the prompt of Acme", "The first initial prompt after “indeed”.", "kgharvest_acme:indeed")


def tab_separated(table):
    yield "\t".join(column.heading for column in table.columns) + "\n"
    for row in table.rows:
        yield "\t".join(map(str, row.values)) + "\n"


TSV = Format("TSV", "text/tab-separated-values", tab_separated)
