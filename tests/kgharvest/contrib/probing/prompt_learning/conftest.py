from tests.kgharvest.engine.conftest import relation, tiny_lm, trained_lm  # noqa: F401 - fixtures
