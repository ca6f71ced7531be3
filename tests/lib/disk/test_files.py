"""What stands on disk is what was given, however it is written."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from lib.disk import files

texts = st.text(st.characters(exclude_categories=("Cs",)))  # a half of a pair cannot be encoded by anybody
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
documents = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=30)


@given(documents)
def test_a_document_is_written_as_json_writes_it_with_an_indent(document: object) -> None:
    assert files.as_written(document).decode() == files.redact(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"
