"""Commands in ./run. Images and services must start the same processes."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command_of_run(program: str) -> list[str]:
    """Return the fixed arguments that ./run passes to Python for gunicorn or celery, without the bind address."""
    [line] = re.findall(rf'^ +exec "\$PYTHON" (-m {program} .*) "\$@"$', (ROOT / "run").read_text(), re.MULTILINE)
    return line.replace('--bind "127.0.0.1:$PORT" ', "").split()
