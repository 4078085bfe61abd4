"""One recording on disk: reader, writer, archive, redaction."""
