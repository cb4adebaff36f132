"""What we ask of language models, with one door to each service."""
