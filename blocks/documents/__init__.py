"""Tables of documents: their texts and columns, kept beside the blocks of a corpus."""
