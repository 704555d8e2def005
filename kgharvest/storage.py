"""How static files are served in production."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names with hashes, in the imports of scripts as well, so that a browser never mixes two versions of them."""

    support_js_module_import_aggregation = True
