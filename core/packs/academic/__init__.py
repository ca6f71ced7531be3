"""From a research question to quotes that are really in the papers."""
