"""Embedded language models and the code that created them.

The LMs are demonstrators: small BERTs trained on a world of facts that was written for this project. With them, users
can harvest immediately and without a download. Their accuracy says nothing about other LMs.
"""

from pathlib import Path

# Model folders in Hugging Face format.
EMBEDDED_LMS: dict[str, Path] = {
    "embedded": Path(__file__).parent / "main",
    "embedded-small": Path(__file__).parent / "small",
}
