"""Makes the README fit for the page of a package index, where links between files lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)\s]+)\)")
_PICTURE = re.compile(r"(?ms)^<picture>.*?</picture>\n+")
_SOURCE = re.compile(r'\b(src|srcset)="(?!\w+:)([^"]+)"')


class ReadmeHook(MetadataHookInterface):
    """Sets the description to what `published` makes of the README."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": published(text, repository.rstrip("/")),
        }


def published(text: str, repository: str) -> str:
    """Point links and pictures to `repository`; without one, keep the words of the links only.

    :param repository: an address such as ``https://github.com/owner/name``
    """
    if not repository:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    text = _LINK.sub(
        lambda link: f"[{link[1]}]({repository}/blob/HEAD/{_in_readme(link[2])})", text
    )
    return _SOURCE.sub(rf'\1="{repository}/raw/HEAD/\2"', text)


def _in_readme(target: str) -> str:
    """A heading is one of the README."""
    return f"README.md{target}" if target.startswith("#") else target
