"""Text of strangers, made harmless: markup goes, what is hidden in it goes, and what reads like an instruction is found.

Ordinary words stay: `p < 0.05`, `a<b and c>d`, the curl of a field, and words of fifty letters are text, and come out as they went in.
"""

from __future__ import annotations

import html
import re
import unicodedata

from msgspec import Struct

LONGEST = 20_000  # characters of one field
_TAGS = [
    "a",
    "abbr",
    "article",
    "aside",
    "b",
    "base",
    "big",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "center",
    "cite",
    "code",
    "col",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "embed",
    "fieldset",
    "figcaption",
    "figure",
    "font",
    "footer",
    "form",
    "frame",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "input",
    "ins",
    "kbd",
    "label",
    "li",
    "link",
    "main",
    "mark",
    "math",
    "meta",
    "nav",
    "noscript",
    "object",
    "ol",
    "option",
    "p",
    "path",
    "picture",
    "pre",
    "q",
    "s",
    "samp",
    "script",
    "section",
    "select",
    "small",
    "source",
    "span",
    "strike",
    "strong",
    "style",
    "sub",
    "sup",
    "svg",
    "table",
    "tbody",
    "td",
    "template",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "title",
    "tr",
    "tt",
    "u",
    "ul",
    "var",
    "video",
    "wbr",
]
_NAME = rf"(?:{'|'.join(_TAGS)}|[a-z]+:[a-z]+)"  # of HTML, or with a prefix as publishers have it: jats:p, mml:math
_ATTRIBUTE = r"""\s+(?:[a-z_:][\w:.-]*\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"']+)|hidden|disabled|checked|async|defer)"""
_MARKUP = re.compile(
    rf"<!--.*?(?:-->|\Z)|<!\[CDATA\[|\]\]>|<!doctype[^>]*>|<(/?)({_NAME})((?:{_ATTRIBUTE})*)\s*(/?)>", re.I | re.S
)
_SILENT = frozenset({"script", "style", "template", "noscript", "iframe", "object", "head"})  # what is in them is not text
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr", "base", "col", "embed", "source", "frame"})
_HIDDEN = re.compile(
    r"\bhidden\b(?!\s*=)|aria-hidden\s*=\s*[\"']?true|display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?![.\d])|font-size\s*:\s*0(?![.\d])",
    re.I,
)
_BREAKS = frozenset({"p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th", "title"})
# Characters that are not seen: of zero width, turning the direction of writing, tags, controls.
_UNSEEN = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)

# Where an order begins: a sentence, or behind words that ask for something. What "we" or "clinicians" do is no order.
_ORDER = (
    r"(?:(?:^|[.!?:;\n\"“”'(\[>*#]\s*|-{2,}\s*)(?:(?:please|now|also|then|next|first|finally|and|important|instead)[,:]?\s+)*"
    r"|\b(?:you\s+(?:must|should|shall|will|need\s+to|have\s+to|are\s+to)|please|be\s+sure\s+to|make\s+sure\s+to|remember\s+to)\s+(?:now\s+)?)"
)
_TO_IT = r"(?:your|my|this (?:machine|agent|model|assistant)'?s?|the (?:agent|model|assistant|user)'?s|all)"
# What a text does not say to its reader, but to a machine. Each is a whole phrase: a single word is never enough.
PATTERNS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.I | re.S)
    for name, pattern in {
        "ignores previous instructions": (
            r"\b(?:ignore|disregard|forget|override|bypass)\s+(?:\w+\s+){0,3}?(?:previous|prior|above|earlier|preceding|foregoing|system|your)\s+"
            r"(?:\w+\s+)?(?:instructions?|prompts?|directives?)\b"
            rf"|{_ORDER}(?:ignore|disregard|forget|override|bypass)\s+(?:\w+\s+){{0,3}}?(?:instructions?|prompts?|directives?)\b"
            rf"|{_ORDER}(?:ignore|disregard|forget|override|bypass)\s+(?:all\s+|any\s+|every\s+)?(?:of\s+)?(?:the\s+)?(?:previous|prior|above|earlier|preceding|system|your)\s+"
            r"(?:\w+\s+)?(?:directions?|rules|commands?|messages?|guidelines)\b"
            r"|\b(?:ignore|disregard|forget)\s+(?:everything|all)\s+(?:above|before|that came before|you (?:know|were told|have been told))\b"
        ),
        "takes over the role": (
            r"\byou\s+are\s+(?:now|no\s+longer)\s+(?:an?\s+|the\s+|in\s+|my\s+)?(?:\w+\s+)?(?:assistant|agent|model|ai|dan|developer\s+mode|administrator|admin|root|chatbot|jailbroken|unrestricted|bound)\b"
            r"|\b(?:act|behave|respond|pretend|roleplay)\s+(?:as|like|to\s+be)\s+(?:if\s+you\s+(?:are|were)\s+)?(?:an?\s+|the\s+)?(?:unrestricted|jailbroken|uncensored|(?:system|root)\s+administrator|root\s+user|system\s+prompt|dan\b|developer\s+mode)\b"
            r"|\bfrom\s+now\s+on,?\s+you\s+(?:will|must|are|shall|should)\b"
            r"|<\|(?:im_start|im_end|system|assistant|user)\|>|\[/?INST\]|<</?SYS>>"
            r"|(?:^|\n)\s*#*\s*(?:system|assistant|developer)(?:\s+(?:prompt|message|note))?\s*:\s*(?:you\b|ignore\b|do\s+not\b|always\b|never\b|from\s+now)"
            r"|\b(?:new|updated|real)\s+instructions?\s*(?:for\s+(?:you|the\s+(?:assistant|agent|model))\s*)?:"
            r"|(?:^|[.!?\n(\[*#]\s*)(?:important\s+)?(?:note|message|notice|attention)\s+(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:\w+\s+)?"
            r"(?:ai|llm|language\s+model|assistant|agent|model|reviewer\s+model)s?(?:\s+\w+){0,3}?\s*[:,!.—-]"
        ),
        "runs a command": (
            r"\brm\s+-[rf]{1,2}\b|\bsudo\s+\w+|\b(?:ba|z|)sh\s+-c\b|\bpowershell\s+-|\bpython3?\s+-c\b|\bos\.system\s*\(|\bsubprocess\.\w+\s*\(|\$\([a-z]+\s|`(?:cat|rm|curl|wget|bash)\s"
            r"|\b(?:use|call|invoke)\s+(?:the|your)\s+(?:bash|shell|terminal|write|edit|webfetch)\s+tool\b"
            r"|\b(?:run|execute)\s+(?:this|the\s+following)\s+(?:\w+\s+)?(?:command|code|script)\s+(?:now|immediately|in\s+your|on\s+your|on\s+this\s+machine)\b"
        ),
        "uses the network": (
            r"\b(?:curl|wget|ncat|netcat|nc|scp|ssh|telnet|ftp)\s+(?:-{1,2}[a-z]|https?://|[\w.-]+@[\w.-]+|\d{1,3}(?:\.\d{1,3}){3})"
            r"|\b(?:Invoke-WebRequest|requests\.(?:get|post)\s*\(|urllib\.request)"
        ),
        "asks for secrets": (
            rf"\b(?:print|reveal|show|send|give|tell|output|read|leak|expose|disclose|repeat|include)\b[^.\n]{{0,40}}?\b{_TO_IT}\s+(?:\w+\s+)?"
            r"(?:api[ _-]?keys?|environment(?:\s+variables)?|credentials?|passwords?|secrets?|private\s+keys?|(?:access\s+)?tokens?|instructions|prompt)\b"
            r"|\b(?:print|reveal|show|give|tell|output|repeat|leak)\b[^.\n]{0,30}?\bsystem\s+prompt\b"
            r"|/etc/(?:passwd|shadow)\b|~/\.ssh\b|\bid_rsa\b|\b[A-Z]+_API_KEY\b|\bread\s+(?:the\s+)?\.env\b"
        ),
        "carries data away": (
            rf"{_ORDER}(?:send|post|upload|forward|transmit|exfiltrate|e-?mail|leak|submit)\s+"
            r"(?:me\s+)?(?:this|the|your|all|any|these)\s+(?:\w+\s+){0,3}?(?:conversation|contents?|files?|keys?|prompts?|context|history|notes|answers?|secrets?|data|results?)\b"
            r"[^.\n]{0,40}?\bto\b[^.\n]{0,20}?(?:https?://|[\w.-]+@[\w-]+\.\w+)"
            r"|!\[[^\]]*\]\(https?://[^)\s]*(?:\?|=)[^)\s]*\{"
        ),
    }.items()
}


class Clean(Struct, frozen=True):
    text: str
    notes: tuple[str, ...] = ()  # what was taken out


def clean(text: str, most: int = LONGEST) -> Clean:
    """Without markup and what cannot be seen. Written twice over (`&lt;script&gt;`), it is undone twice."""
    found: list[str] = []
    for _ in range(4):
        before = text
        text = _without_markup(text, found)
        if re.search(r"&(?:#\d+|#x[\da-f]+|[a-z]{2,8});", text, re.I):
            text = html.unescape(text)
        if text == before:
            break
    shown = _UNSEEN.sub(lambda m: m[0] if m[0] == "\u00ad" else "", text)
    if shown != text:
        found.append("characters that are not seen")
    if len(shown) > most:
        shown, cut = shown[:most], len(shown)
        found.append(f"{cut - most} characters behind the first {most}")
    return Clean(shown, tuple(dict.fromkeys(found)))


def instruction(text: str) -> str:
    """What is wrong with it: the name of the pattern that it matches; empty for ordinary text."""
    plain = re.sub(r"[ \t\r\f\v]+", " ", _UNSEEN.sub("", unicodedata.normalize("NFKC", text)))
    folded = plain.replace("\n", " ")
    return next((name for name, pattern in PATTERNS.items() if pattern.search(plain) or pattern.search(folded)), "")


def withheld(text: str) -> tuple[str, list[str]]:
    """A page for an agent to read: sentences that read like an instruction are taken out, and said. The rest is as it was."""
    if not instruction(text):
        return text, []
    kept: list[str] = []
    why: list[str] = []
    pieces = re.split(r"(?<=[.!?])(\s+)", text)
    for piece in pieces:
        reason = instruction(piece)
        kept.append(f"[withheld: it {reason}]" if reason else piece)
        why += [reason] if reason else []
    joined = "".join(kept)
    return (
        (joined, why) if not instruction(joined) else ("[this page is withheld: it reads like instructions]", [instruction(text)])
    )


def _without_markup(text: str, found: list[str]) -> str:
    if "<" not in text and "]]>" not in text:
        return text
    out: list[str] = []
    silent: list[str] = []  # elements whose content is not text, from the outermost in
    at = 0
    for tag in _MARKUP.finditer(text):
        if not silent:
            out.append(text[at : tag.start()])
        at = tag.end()
        name = (tag[2] or "").lower()
        if not name:
            found.append("a comment" if tag[0].startswith("<!--") else "markup")
            continue
        found.append("markup")
        if tag[1]:  # it ends
            if name in silent:
                del silent[silent.index(name) :]
        elif name not in _VOID and not tag[4] and (silent or name in _SILENT or _HIDDEN.search(tag[3] or "")):
            silent.append(name)
            found.append(f"what stood in <{name}>" if name in _SILENT else "what was hidden")
        if name in _BREAKS and not silent:
            out.append("\n" if name != "title" else " ")
    if not silent:
        out.append(text[at:])
    joined = "".join(out)
    return re.sub(r"[ \t]*\n\s*", "\n", joined).strip() if at else joined
