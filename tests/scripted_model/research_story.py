"""Deep research's quickstart: pages on loopback, and what the scripted model says of them. One quote is almost there and is thrown
away; a gap brings a second wave; the review asks for one change. Recording it is what this is for.
"""

from __future__ import annotations

import re

from packs.deep_research import citing

from scripted_model.server import Reply, Request, say, tool

QUERY = "Which self-hosted wikis survive ten years?"
PAGES = {
    "/history": ("A short history of wiki software", """<p>MoinMoin was first released in 2000, MediaWiki in 2002 and DokuWiki in
        2004.</p><p>Of the 140 wiki engines that a directory listed in 2010, 31 had a release in the last two years.</p>
        <p>What the survivors have in common is not a feature but a group of maintainers that renews itself.</p>"""),
    "/storage": ("Where a wiki keeps its pages", """<p>DokuWiki keeps its pages in plain text files, without a database, so that a
        backup is a copy of a folder.</p><p>An engine that keeps pages in a database depends on the upgrades of that database as
        well as on its own.</p>"""),
    "/migration": ("Moving 12,000 pages", """<p>We moved 12,000 pages between two engines in nine days; 4 % of them needed a hand.</p>
        <p>The links inside the pages were the hard part, not the text.</p>"""),
    "/doubt": ("Against longevity", """<p>A wiki does not die when its engine stops; it dies when nobody edits it, which in our
        sample of 60 company wikis took 3 years in the median.</p>"""),
}  # fmt: skip
ABOUT = {"maintenance": "/history", "storage": "/storage", "doubt": "/doubt", "gap-1": "/migration"}
PERSPECTIVES = [
    {"id": "maintenance", "title": "Who maintains them", "track": "standard",
     "question": "Which engines have been released for ten years or more, and what do they have in common?"},
    {"id": "storage", "title": "What they depend on", "track": "independent",
     "question": "How does the way an engine keeps its pages bear on how long it can be run?"},
    {"id": "doubt", "title": "Whether the engine matters", "track": "contrarian",
     "question": "What speaks against the idea that a wiki lives as long as its engine?"},
]  # fmt: skip
FOUND = {
    "maintenance": "Three engines of the first years are still released; most of those of 2010 are not.",
    "storage": "Plain files take one dependency away.",
    "doubt": "Wikis die of neglect sooner than of their engine.",
    "gap-1": "Moving is possible, and links are its cost.",
}
CLAIMS = {
    "maintenance": [
        ("Three long-lived engines date from 2000 to 2004.", "MoinMoin was first released in 2000, MediaWiki in 2002 and DokuWiki in 2004."),
        ("Fewer than a quarter of the engines of 2010 were alive.",
         "Of the 140 wiki engines that a directory listed in 2010, 31 had a release in the last two years."),
        ("Survivors share their maintainers.", "What all survivors have in common is a group of maintainers"),  # almost, but not quite
    ],
    "storage": [
        ("DokuWiki needs no database.", "DokuWiki keeps its pages in plain text files, without a database, so that a backup is a copy of a folder."),
        ("A database is a second thing to upgrade.", "depends on the upgrades of that database as well as on its own"),
    ],
    "doubt": [("Company wikis die of neglect.", "it dies when nobody edits it, which in our sample of 60 company wikis took 3 years in the median")],
    "gap-1": [
        ("Pages can be moved.", "We moved 12,000 pages between two engines in nine days; 4 % of them needed a hand."),
        ("Links are the hard part.", "The links inside the pages were the hard part, not the text."),
    ],
}  # fmt: skip


class Story:
    def __init__(self, site: str) -> None:
        self.site = site
        self.rounds = 0

    def __call__(self, r: Request) -> Reply:
        agent, about = re.findall(r"^/([a-z][a-z-]*) ?(\S*)", r.prompt, re.M)[0]
        if agent == "perspective-planner":
            return say(tool("StructuredOutput", perspectives=PERSPECTIVES))
        if agent == "wave-researcher":
            if r.turn == 0:
                return say(tool("Write", file_path=r.path("report"), content=self.wave(about)))
            claims = [{"text": text, "url": f"{self.site}{ABOUT[about]}", "quote": quote} for text, quote in CLAIMS[about]]
            if about == "doubt":
                claims[0]["against"] = "that a wiki lives as long as its engine is maintained"
            return say(tool("StructuredOutput", claims=claims))
        if agent == "report-reviewer":
            first = "/round-1/" in r.path("report")
            words = [
                "The Summary does not say what to do about the links inside pages, which the passages name as the cost of moving."
            ]
            return say(
                tool("StructuredOutput", decision="CHANGES_REQUIRED" if first else "PASS", directives=words if first else [])
            )
        if r.turn == 0:
            text = self.report("sent the work back" in r.prompt) if agent == "report-writer" else self.summary(about)
            return say(tool("Write", file_path=r.path("report"), content=text))
        return say("Written.\n\nSTAGE_TASK_COMPLETE")

    def wave(self, about: str) -> str:
        gap = (
            "(P0) nobody has said what it costs to move when an engine ends #migration"
            if about == "maintenance"
            else "(P3) other languages"
        )
        return f"# Findings\n\n{FOUND[about]}\n\n# Sources\n\n- {self.site}{ABOUT[about]}\n\n# Gaps\n\n- {gap}\n"

    def summary(self, about: str) -> str:
        name = about.split("-", 2)[2]
        return f"{FOUND[name]} [@{self.cid(name)}]\n"

    def cid(self, name: str) -> str:
        return citing.cid(f"{self.site}{ABOUT[name]}")

    def report(self, again: bool) -> str:
        old, files, doubt, moved = (f"[@{self.cid(name)}]" for name in ABOUT)
        links = f" Before you choose, look at how it writes links: they are what moving costs {moved}." if again else ""
        return f"""## Summary

Those whose maintainers renew themselves, and of these the ones you can leave: MediaWiki and DokuWiki are the safest of the long-lived
engines, the second because its pages are plain files.{links}

## Key Findings

- MoinMoin (2000), MediaWiki (2002) and DokuWiki (2004) are the engines of the first years that are still named {old}.
- Of 140 engines listed in 2010, 31 had a release in the last two years {old}.
- Plain files take one dependency away: a backup is a copy of a folder {files}.
- A wiki dies of neglect sooner than of its engine: in 60 company wikis after 3 years in the median {doubt}.

## Evidence

Age and releases come from one history of the software {old}. That files outlast databases is an argument, not a measurement: an engine
with a database also depends on the upgrades of that database {files}. Moving was done once with 12,000 pages in nine days, of which 4 %
needed a hand {moved}. Against the question itself stands the sample of company wikis, which died while their engines lived {doubt}.

## Caveats

Each finding rests on one source. Nobody has measured how long wikis live by engine, and the sample of company wikis is small.
"""
