"""The knowledge base: what was researched, by domain, vertical and persona, in versions, to be asked."""
