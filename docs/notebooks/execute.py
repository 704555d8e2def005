"""Execute the notebooks of this folder and store their outputs, without Jupyter.

    python docs/notebooks/execute.py [NAME.ipynb ...]

Each notebook runs in this folder with a namespace of its own. An error ends the run and leaves the file unchanged.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent

Notebook = dict[str, Any]
Output = dict[str, Any]


def execute(notebook: Notebook) -> Notebook:
    """Return the notebook with the outputs of its code cells: printed text, and the value of the last expression."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": outputs_of("".join(cell["source"]), namespace, count)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def outputs_of(source: str, namespace: dict[str, Any], count: int) -> list[Output]:
    """Run the code of a cell and return its outputs in the format of notebooks (nbformat 4)."""
    body = ast.parse(source).body
    value, printed = None, io.StringIO()
    with redirect_stdout(printed):
        *statements, last = body
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(statements, []), "<cell>", "exec"), namespace)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
        else:
            exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
    outputs: list[Output] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        lines = {kind: text.splitlines(keepends=True) for kind, text in sorted(data.items())}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": lines})
    return outputs


def main() -> None:
    os.chdir(FOLDER)
    sys.path.insert(0, str(FOLDER.parents[1]))
    for path in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        notebook = execute(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
