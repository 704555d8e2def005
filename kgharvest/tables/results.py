"""Results of the Python API: objects that convert to a data frame, and that notebooks display as a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from kgharvest.errors import DomainError
from kgharvest.tables.html import html_of
from kgharvest.tables.table import Table, first_rows

if TYPE_CHECKING:
    import pandas

ROWS_SHOWN = 20


class Result(ABC):
    """A result with dataclasses of one type as rows. COLUMNS: fields of the rows, in the order of the data frame."""

    COLUMNS: ClassVar[Sequence[str]]

    @abstractmethod
    def rows(self) -> Sequence[Any]:
        """Return the rows of the data frame."""

    @abstractmethod
    def table(self) -> Table:
        """Return the result as a table for people."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a data frame, with a column per field. Raises DomainError NeedsPandas."""
        try:
            import pandas
        except ImportError as error:
            raise DomainError("NeedsPandas", "to_pandas requires pandas. Run: pip install pandas") from error
        return pandas.DataFrame(map(asdict, self.rows()), columns=list(self.COLUMNS))

    def _repr_html_(self) -> str:
        """Display in notebooks."""
        return html_of(first_rows(self.table(), ROWS_SHOWN, ROWS_SHOWN, "to_pandas() returns all rows."))
