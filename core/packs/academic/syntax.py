"""Search strings: one grammar, and what each database makes of it. A query is parsed before it is sent, and a generic one is translated.

query  := part (OR part)*          part := side ((AND | NOT | near)? side)*          side := NOT? [field] (term | "(" query ")") [tag]
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct


class Node(Struct, frozen=True):
    kind: str  # word, phrase, and, or, not, field
    text: str = ""  # of a word or a phrase; the name of a field
    parts: tuple[Node, ...] = ()


class Dialect(Struct, frozen=True):
    """How a database wants its queries written."""

    name: str
    and_: str = "AND"
    or_: str = "OR"
    not_: str = "NOT"  # between two sides: a NOT b
    near: str = ""  # a pattern of what else stands between two sides
    prefix: str = ""  # a pattern of a field in front, such as TITLE-ABS-KEY( or ti:
    tags: tuple[str, ...] = ()  # of fields behind a term: [Title/Abstract]
    wildcard: bool = True
    phrases: bool = True
    groups: bool = True
    operators: bool = True
    first_not: bool = True  # a side may begin with NOT
    example: str = ""


DIALECTS = {
    d.name: d
    for d in (
        Dialect("generic", example='(wiki OR "knowledge base") AND maintenance NOT game'),
        Dialect("ieee", near=r"O?NEAR/\d+", prefix=r'"(?:All Metadata|Document Title|Abstract|Author Keywords|Index Terms|IEEE Terms|Authors|Author Affiliations|Publication Title|Publication Year|Full Text & Metadata|Full Text Only|DOI|ISSN|ISBN)":',
                example='("All Metadata":wiki OR "Abstract":"knowledge base") AND maintenance'),
        Dialect("acm", prefix=r"(?:Title|Abstract|Keyword|AllField|Fulltext|Author):", example='Title:(wiki OR "knowledge base") AND AllField:maintenance'),
        Dialect("scopus", not_="AND NOT", near=r"(?:W|PRE)/\d+", prefix=r"(?:TITLE-ABS-KEY|TITLE-ABS|TITLE|ABS|KEY|AUTH|SRCTITLE|ALL|DOI|LANGUAGE)(?=\()", first_not=False,
                example='TITLE-ABS-KEY((wiki OR "knowledge base") AND maintenance AND NOT game)'),
        Dialect("wos", near=r"NEAR(?:/\d+)?|SAME", prefix=r"(?i:TS|TI|AB|AK|KP|AU|SO|PY|DO|DT|LA|WC|SU|OG|ALL)\s*=\s*", first_not=False, example='TS=((wiki OR "knowledge base") AND maintenance NOT game)'),
        Dialect("pubmed", tags=("Title", "Title/Abstract", "tiab", "ti", "ab", "MeSH Terms", "mh", "MeSH Major Topic", "majr", "All Fields", "tw", "Author", "au", "Journal", "ta", "pt", "Publication Type", "dp", "la", "mesh", "Mesh:NoExp", "Text Word", "pdat", "Date - Publication", "Filter", "sb", "Affiliation", "ad", "Language", "doi"),
                first_not=False, example='(wiki[Title/Abstract] OR "knowledge base"[MeSH Terms]) AND maintenance'),
        Dialect("arxiv", not_="ANDNOT", prefix=r"(?:ti|au|abs|co|jr|cat|rn|id|all):(?=\S)", wildcard=False, first_not=False, example='abs:wiki AND (ti:"knowledge base" OR all:maintenance)'),
        Dialect("openalex", wildcard=False, example='(wiki OR "knowledge base") AND maintenance NOT game'),
        Dialect("crossref", operators=False, phrases=False, groups=False, wildcard=False, example="wiki knowledge base maintenance"),
        Dialect("semantic_scholar", and_="+", or_="|", not_="-", example='(wiki | "knowledge base") + maintenance -game'),
    )
}  # fmt: skip
MOST_TOKENS = 300
_PLAIN_OPERATORS = ("AND", "OR", "NOT", "ANDNOT")


class Broken(ValueError):  # noqa: N818 - said of a query, not of the program
    """What is wrong with a query, for whoever wrote it."""


class Token(Struct, frozen=True):
    kind: str  # and, or, not, near, field, tag, open, close, word, phrase
    text: str


def parse(query: str, dialect: str) -> Node:
    """The query as a tree; raises Broken."""
    rules = DIALECTS[dialect]
    tokens = _tokens(query, rules)
    if not tokens:
        raise Broken("it is empty")
    if not rules.operators:
        return Node("and", parts=tuple(Node("word", t.text) for t in tokens))
    if len(tokens) > MOST_TOKENS:
        raise Broken(f"it has {len(tokens)} words and signs, and at most {MOST_TOKENS} are read")
    reader = _Reader(tokens, rules)
    tree = reader.query()
    if reader.peek():
        raise Broken("a closing parenthesis has no opening one")
    return tree


def problem(query: str, dialect: str) -> str:
    """What is wrong with a query in the syntax of a database; empty where nothing is."""
    try:
        parse(query, dialect)
    except Broken as error:
        return f"{error} (as {dialect} wants it: {DIALECTS[dialect].example})"
    return ""


def translate(query: str, dialect: str, source: str = "generic") -> str:
    """A generic query as a database wants it. What the database cannot say is left out rather than sent as words."""
    rules = DIALECTS[dialect]
    tree = parse(query, source)
    if not rules.operators:
        return " ".join(dict.fromkeys(_words(tree)))
    return _WRAP.get(dialect, lambda text: text)(_render(tree, rules, top=True))


def _tokens(query: str, rules: Dialect) -> list[Token]:
    found: list[Token] = []
    at = 0
    text = query.strip()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token, at = _token(text, at, rules, found)
        found.append(token)
    return found


def _token(text: str, at: int, rules: Dialect, before: list[Token]) -> tuple[Token, int]:
    rest = text[at:]
    if rules.prefix and (field := re.match(rules.prefix, rest)):
        return Token("field", field[0]), at + field.end()
    if rest[0] == '"' or (rules.name == "scopus" and rest[0] == "{"):
        return _phrase(rest, at, rules)
    if rest[0] in "()":
        if not rules.groups:
            raise Broken("it has no parentheses there: only words are sent")
        return Token("open" if rest[0] == "(" else "close", rest[0]), at + 1
    if rules.tags and rest[0] == "[":
        return _tag(rest, at, rules)
    if rules.and_ == "+" and rest[0] in "+|-":
        return Token({"+": "and", "|": "or", "-": "not"}[rest[0]], rest[0]), at + 1
    word = re.match(r'[^\s()"\[\]]+' if rules.and_ != "+" else r'[^\s()"|+\[\]]+', rest)
    if not word:
        raise Broken(f"{rest[0]!r} does not belong there")
    return _word(word[0], rest, rules, before), at + (len("AND NOT") if _is_and_not(rest, rules) else word.end())


def _is_and_not(rest: str, rules: Dialect) -> bool:
    return rules.not_ == "AND NOT" and bool(re.match(r"AND NOT\b", rest))


def _word(word: str, rest: str, rules: Dialect, before: list[Token]) -> Token:
    if not rules.operators:
        if word in _PLAIN_OPERATORS:
            raise Broken(f"{word} is a word like any other there: only words are sent")
        return Token("word", _checked(word, rules))
    if rules.and_ == "AND":
        if _is_and_not(rest, rules):
            return Token("not", "AND NOT")
        kinds = {rules.and_: "and", rules.or_: "or", rules.not_: "not"}
        if word in kinds:
            return Token(kinds[word], word)
        if rules.near and re.fullmatch(rules.near, word):
            return Token("near", word)
        if word in _PLAIN_OPERATORS:
            raise Broken(f"{word} is no operator there: write {rules.not_}")
        if word.lower() in ("and", "or", "not") and before:
            raise Broken(f"write {word.upper()}, not {word}: in small letters it is a word")
    elif word in _PLAIN_OPERATORS:
        raise Broken(f"{word} is a word there: write {rules.and_}, {rules.or_} or {rules.not_}")
    return Token("word", _checked(word, rules))


def _checked(word: str, rules: Dialect) -> str:
    if ("*" in word or "?" in word) and not rules.wildcard:
        raise Broken(f"{word}: there are no wildcards there")
    if word.startswith("*") or word.strip("*?") == "":
        raise Broken(f"{word}: a wildcard stands behind the beginning of a word")
    field = re.match(r"([A-Za-z-]{2,}):\S", word)
    if field and rules.name not in ("crossref",) and not word.startswith(("http:", "https:")):
        raise Broken(f"{field[1]}: is no field there")
    if rules.operators and ("&&" in word or "||" in word or any(mark in word for mark in "“”„")):
        raise Broken(f"{word}: operators are words there, and quotation marks are straight")
    if rules.operators and word.endswith(":"):
        raise Broken(f"{word} stands before nothing")
    if "=" in word and rules.operators:
        raise Broken(f"{word}: there are no fields of that form there")
    return word


def _phrase(rest: str, at: int, rules: Dialect) -> tuple[Token, int]:
    end = rest.find('"' if rest[0] == '"' else "}", 1)
    if not rules.phrases:
        raise Broken("it has no phrases there: only words are sent")
    if end < 0:
        raise Broken("a quotation mark is not closed")
    inner = rest[1:end].strip()
    if not inner:
        raise Broken("a phrase is empty")
    if rest[end + 1 : end + 2] == ":":
        raise Broken(f'"{inner}": is no field there')
    return Token("phrase", inner), at + end + 1


def _tag(rest: str, at: int, rules: Dialect) -> tuple[Token, int]:
    end = rest.find("]")
    name = rest[1:end] if end > 0 else rest[1:]
    if end < 0 or name.lower() not in {t.lower() for t in rules.tags}:
        raise Broken(f"[{name}] is no field there")
    return Token("tag", name), at + end + 1


class _Reader:
    def __init__(self, tokens: list[Token], rules: Dialect) -> None:
        self.tokens, self.rules, self.at = tokens, rules, 0

    def peek(self) -> str:
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def query(self) -> Node:
        parts = [self.part()]
        while self.peek() == "or":
            self.take()
            parts.append(self.part())
        if len(parts) > 1 and any(part.kind == "not" for part in parts):
            raise Broken("OR with NOT finds nearly everything there is: join what is excluded with AND")
        return parts[0] if len(parts) == 1 else Node("or", parts=tuple(parts))

    def part(self) -> Node:
        parts = [self.side(first=True)]
        while self.peek() and self.peek() not in ("or", "close"):
            kind = self.peek()
            if kind in ("and", "near"):
                self.take()
                if self.peek() == "not" and not self.rules.first_not:
                    raise Broken(f"{self.rules.and_} and {self.rules.not_} stand side by side")
                parts.append(self.side())
            elif kind == "not":
                self.take()
                if self.peek() == "not":
                    raise Broken(f"{self.rules.not_} stands twice")
                parts.append(Node("not", parts=(self.side(),)))
            else:
                parts.append(self.side())  # side by side: both
        return parts[0] if len(parts) == 1 else Node("and", parts=tuple(parts))

    def side(self, first: bool = False) -> Node:
        kind = self.peek()
        if not kind:
            raise Broken("it ends with an operator" if self.at else "it is empty")
        if kind == "not" and self.rules.first_not:
            self.take()
            if self.peek() == "not":
                raise Broken(f"{self.rules.not_} stands twice")
            return Node("not", parts=(self.side(),))
        if kind in ("and", "or", "near", "not"):
            before = "begins with" if self.at == 0 else f"has {self.tokens[self.at - 1].text} and then"
            raise Broken(f"it {before} {self.tokens[self.at].text}")
        if kind == "tag":
            raise Broken(f"[{self.tokens[self.at].text}] stands behind nothing")
        if kind == "close":
            raise Broken("parentheses with nothing in them, or one too many")
        token = self.take()
        if token.kind == "field":
            if self.peek() == "field":
                raise Broken(f"{token.text} and {self.tokens[self.at].text} stand side by side")
            return Node("field", token.text.rstrip(":=("), (self.side(),))
        node = Node(token.kind, token.text)
        if token.kind == "open":
            node = self.query()
            if self.peek() != "close":
                raise Broken("a parenthesis is not closed")
            self.take()
        if self.peek() == "tag":
            node = Node("field", self.take().text, (node,))
        return node


def _words(node: Node) -> list[str]:
    if node.kind == "not":
        return []
    if node.kind in ("word", "phrase"):
        return [w for w in (re.sub(r"[*?\"]", "", part) for part in node.text.split()) if w]
    return [word for part in node.parts for word in _words(part)]


def _render(node: Node, rules: Dialect, top: bool = False) -> str:
    field = {"arxiv": "all:"}.get(rules.name, "")
    if node.kind == "word":
        text = node.text if rules.wildcard else re.sub(r"[*?]", "", node.text)
        return f"{field}{text}" if text.isalnum() or "*" in text else f'{field}"{text}"'
    if node.kind == "phrase":
        return f'{field}"{node.text if rules.wildcard else re.sub(r"[*?]", "", node.text)}"'
    if node.kind == "field":
        return _render(node.parts[0], rules, top)
    if node.kind == "not":  # alone: nothing but what is not meant
        inner = _render(node.parts[0], rules)
        return f"{rules.not_} {inner}" if rules.and_ != "+" else f"-{inner}"
    said = [p for p in node.parts if p.kind != "not"]
    without = [p for p in node.parts if p.kind == "not"]
    joined = f" {rules.or_ if node.kind == 'or' else rules.and_} ".join(_render(p, rules) for p in said)
    for no in without:
        inner = _render(no.parts[0], rules)
        joined += f" {rules.not_} {inner}" if rules.and_ != "+" else f" -{inner}"
    joined = joined.strip()
    return joined if top else f"({joined})"


_WRAP: dict[str, Callable[[str], str]] = {
    "scopus": lambda text: f"TITLE-ABS-KEY({text})",
    "wos": lambda text: f"TS=({text})",
}
