"""Document tables: texts and columns of documents, stored beside the blocks of a corpus."""
