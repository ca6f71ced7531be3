"""Deep research: a report whose every claim can be looked up. The rules of research and the machine that keeps to them."""
