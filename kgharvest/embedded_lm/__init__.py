"""The language models that come with the project, and how they were made.

A demonstrator: small BERTs trained on a world of facts written for this project, so that harvesting works at once and
without a download. Their accuracy says nothing about other LMs.
"""

from pathlib import Path

# Name -> folder with the model in Hugging Face format.
EMBEDDED_LMS: dict[str, Path] = {
    "embedded": Path(__file__).parent / "main",
    "embedded-small": Path(__file__).parent / "small",
}
