"""Documents and their words: ingestion of texts and bags of words, and datasets of them."""
