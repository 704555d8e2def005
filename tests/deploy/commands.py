"""What ./run starts, which images and services have to start as well."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command_of_run(program: str) -> list[str]:
    """Return what ./run executes but for the address: `-m gunicorn ...` or `-m celery ...`, up to what callers add."""
    [line] = re.findall(rf'^ +exec "\$PYTHON" (-m {program} .*) "\$@"$', (ROOT / "run").read_text(), re.MULTILINE)
    return line.replace('--bind "127.0.0.1:$PORT" ', "").split()
