"""The harvesting engine: relation and LM in, scored tuples out. No Django, no Celery, no database."""
