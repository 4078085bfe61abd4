"""The types of the answer to an expression, whichever engine gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

_ARROW = {"boolean": "bool"}


def arrow_schema(question: ibis.Table) -> pa.Schema:
    """Names and types of its columns."""
    import pyarrow as pa

    fields = []
    for name, type_ in question.schema().items():
        plain = str(type_).lstrip("!")
        fields.append(pa.field(name, pa.type_for_alias(_ARROW.get(plain, plain))))
    return pa.schema(fields)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """The same table with the values of dictionaries in their place."""
    import pyarrow as pa

    fields = []
    for field in table.schema:
        is_coded = pa.types.is_dictionary(field.type)
        fields.append(field.with_type(field.type.value_type) if is_coded else field)
    return table.cast(pa.schema(fields))


def ibis_table(name: str, schema: pa.Schema) -> ibis.Table:
    """The table `name` for expressions, with these columns."""
    import ibis

    types = {field.name: str(field.type).replace("double", "float64") for field in schema}
    return ibis.table(types, name=name)
