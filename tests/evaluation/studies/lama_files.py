"""Files of LAMA, soft-prompts, and LPAQA in their folders, with a few facts of one relation."""

import json
from pathlib import Path

FACTS = {
    "train": [("Paris", "France"), ("Rome", "Italy")],
    "dev": [("Madrid", "Spain")],
    "test": [("Berlin", "Germany")],
}
WORDS = ["France", "Italy", "Spain", "Germany"]


def write_lama(folder: Path) -> Path:
    """Write the files that the built-in study lama-probing reads; return their folder."""
    lama = folder / "lama"
    relation = {"relation": "P1376", "template": "[X] is the capital of [Y] .", "type": "1-1"}
    lines = {
        "data/relations.jsonl": [relation],
        "LPAQA/prompt/mine/P1376.jsonl": [{"template": "[X] , capital of [Y]", "weight": 0.5}],
        **{
            f"soft-prompts/db/trex_original/P1376/{part}.jsonl": [{"sub": sub, "obj": obj} for sub, obj in pairs]
            for part, pairs in FACTS.items()
        },
    }
    for name, rows in lines.items():
        path = lama / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (lama / "common_vocab_cased.txt").write_text("\n".join(WORDS))
    return lama
