"""Upload of a judged KG or a replication package to the Hugging Face Hub, as a data set in one commit.

Only complete exports are uploaded. If the folder contains other files, the upload is refused, so that private files
cannot be published by accident. An interrupted upload leaves content on the hub but no commit; a second call reuses
this content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id

from kgharvest.contrib.publishing.packs.archive import SUMS, Pack, checksum_differences
from kgharvest.errors import DomainError

CARD = "README.md"
OF_THE_HUB = ".gitattributes"  # the hub creates this file in each repository
DATA_SET: dict[str, Any] = {"repo_type": "dataset"}


class DataSet(NamedTuple):
    """An export to upload. title: title in the data set card. contents: contents of the files by path."""

    title: str
    contents: Mapping[str, bytes]


class Upload(NamedTuple):
    """A finished upload. url: URL of the data set.

    commit: hash of the commit, or of the previous commit if nothing changed.
    """

    url: str
    commit: str
    is_private: bool


def read_data_set(path: Path) -> DataSet:
    """Read a folder or ZIP file written by `export_kg --format hf` or `pack`.

    Raises BadPack, or DomainError NotADataSet for other folders, files that do not belong to the export, and packages
    with altered files.
    """
    contents = Pack(path)
    card = _card_fields(contents.get(CARD, b""))
    if "pretty_name" not in card:
        raise DomainError(
            "NotADataSet",
            f"{path} has no data set card ({CARD}). Write a data set with export_kg --format hf or with pack.",
        )
    if SUMS in contents:
        problems = list(checksum_differences(contents))
    else:
        patterns = [CARD, *_data_files(card)]
        problems = [
            f"{name}: not in the card"
            for name in sorted(contents)
            if not any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
    if problems:
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        raise DomainError(
            "NotADataSet",
            f"{path} is not as exported ({problems[0]}{more}). Remove other files, or export it again.",
        )
    return DataSet(str(card["pretty_name"]), contents)


def _card_fields(card: bytes) -> dict[str, Any]:
    """Return the fields in the YAML block at the start of a card. The result is empty if there is no such block."""
    opening, _, rest = card.decode("utf-8", "replace").partition("---\n")
    block, closing, _ = rest.partition("\n---\n")
    if opening or not closing:
        return {}
    try:
        fields = yaml.safe_load(block)
    except yaml.YAMLError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _data_files(card: Mapping[str, Any]) -> Iterator[str]:
    """Yield the patterns of data files in the `configs` of a card, as `export_kg` writes it."""
    try:
        for config in card.get("configs", []):
            for split in config["data_files"]:
                yield str(split["path"])
    except (KeyError, TypeError):
        return  # `export_kg` did not write this card, so the data files count as unexpected


def check_repository(name: str) -> None:
    """Raise DomainError BadRepository unless `name` is a valid OWNER/NAME."""
    try:
        validate_repo_id(name)
        if name.count("/") == 1:
            return
        reason = "The owner is missing."
    except HFValidationError as error:
        reason = str(error).partition("\n")[0]
    raise DomainError("BadRepository", f"{name!r:.100} is not a repository name of the form OWNER/NAME. {reason}")


def upload(
    data_set: DataSet, repository: str, branch: str = "main", is_public: bool = False, is_replacing: bool = False
) -> Upload:
    """Create the repository if needed, and upload the data set in one commit.

    is_public: permit a public repository; new repositories are private otherwise. is_replacing: delete all other files
    of the branch in the same commit. The token comes from HF_TOKEN or `hf auth login`.

    Raises DomainError with the code BadRepository, NoToken, NotPermitted, PublicRepository, OtherFiles, HubUnreachable,
    or HubFailed.
    """
    check_repository(repository)
    if get_token() is None:
        raise DomainError("NoToken", "No Hugging Face token. Set HF_TOKEN, or log in with: hf auth login")
    hub = HfApi()
    with _hub_errors(repository):
        url = hub.create_repo(repository, private=not is_public, exist_ok=True, **DATA_SET)
        existing = hub.dataset_info(repository)
        if not existing.private and not is_public:
            raise DomainError(
                "PublicRepository",
                f"{repository} is public. Use --public to publish there, or choose a private repository.",
            )
        if branch != "main":
            hub.create_branch(repository, branch=branch, exist_ok=True, **DATA_SET)
            existing = hub.dataset_info(repository, revision=branch)
        names = {sibling.rfilename for sibling in existing.siblings or []}
        others = sorted(names - data_set.contents.keys() - {OF_THE_HUB})
        if others and not is_replacing:
            raise DomainError(
                "OtherFiles",
                f"{repository} contains {len(others):,} other files (first: {others[0]}). Use --replace to delete them "
                "in the same commit, or choose another repository.",
            )
        operations = [
            *(CommitOperationDelete(name) for name in others),
            *(CommitOperationAdd(name, content) for name, content in sorted(data_set.contents.items())),
        ]
        message = f"Upload {data_set.title}"
        commit = hub.create_commit(repository, operations, commit_message=message, revision=branch, **DATA_SET)
    return Upload(str(url), commit.oid, bool(existing.private))


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Convert errors of the hub's client to DomainErrors."""
    try:
        yield
    except (HTTPError, OfflineModeIsEnabled, RuntimeError, ValueError) as error:
        # The client wraps errors of single files in RuntimeError.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise _domain_error(cause, repository) from error


def _domain_error(error: BaseException, repository: str) -> DomainError:
    again = "Run the command again; content that has arrived is not sent again."
    if isinstance(error, HfHubHTTPError):
        reason = error.server_message or str(error).partition("\n")[0]
        status = error.response.status_code
        if status == 401:
            return DomainError(
                "NotPermitted", f"The hub rejected the token ({reason}). Create a token and log in again."
            )
        if status in (403, 404):
            return DomainError(
                "NotPermitted",
                f"The token may not write to {repository} ({reason}). Use a token with write permission, or your own "
                "name as OWNER.",
            )
        return DomainError("HubFailed", f"The hub answered with status {status} ({reason}). {again}")
    if isinstance(error, HTTPError | OfflineModeIsEnabled):
        return DomainError(
            "HubUnreachable", f"The Hugging Face Hub is unreachable ({error}). Check the network. {again}"
        )
    return DomainError("HubFailed", f"The upload to {repository} failed ({error}). {again}")
