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
_RUNS = frozenset({"script", "style", "iframe"})  # the tag goes in any case; what stands behind it only when it is closed
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr", "base", "col", "embed", "source", "frame"})
_HIDDEN = re.compile(
    r"\bhidden\b(?!\s*=)|aria-hidden\s*=\s*[\"']?true|display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?![.\d])|font-size\s*:\s*0(?![.\d])",
    re.I,
)
_BREAKS = frozenset({"p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th", "title"})
# Characters that are not seen: of zero width, turning the direction of writing, tags, controls.
_UNSEEN = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufffe\uffff\u061c\u180e\u3164\u115f\u1160\ufe00-\ufe0f"
    "\ud800-\udfff\U000e0000-\U000e007f\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]"
)

# Where an order begins: a sentence, or behind words that ask for something. What "we" or "clinicians" do is no order.
_ORDER = (
    r"(?:(?:^|[.!?:;\n\"“”'(\[>*#]\s*|-{2,}\s*)(?:(?:please|now|also|then|next|first|finally|and|important|instead)[,:]?\s+)*"
    r"|\b(?:you\s+(?:must|should|shall|will|need\s+to|have\s+to|are\s+to)|please|be\s+sure\s+to|make\s+sure\s+to|remember\s+to)\s+(?:now\s+)?)"
)
_YOURS = r"(?:your|my|this (?:machine|agent|model|assistant)'?s?|the (?:agent|model|assistant|user)'s)"
_MACHINE = r"(?:ai|llm|language\s+model|assistant|agent|model|chatbot|gpt|chatgpt|claude)"
_BIDS = r"(?:you|ignore|do\s+not|always|never|rate|print|send|reveal|write|output|give|set|accept|score|recommend|reply|respond|answer|please|from\s+now)"
_SECRETS = r"(?:api[ _-]?keys?|environment(?:\s+variables)?|credentials?|passwords?|secrets?|private\s+keys?|(?:access\s+)?tokens?|instructions|prompt)\b"
_TELL = r"(?:print|reveal|show|send|give|tell|output|read|leak|expose|disclose|repeat|include)"
_IGNORE = r"(?:ignore|disregard|forget|override|bypass)"
_TOLD = "".join(  # what somebody does or was told is a report, and no order
    f"(?<!{word} )"
    for word in ("told to", "asked to", "instructed to", "users", "participants", "patients", "clinicians", "they", "we", "often", "not", "may", "can")
)  # fmt: skip
# What a text does not say to its reader, but to a machine. Each is a whole phrase: a single word is never enough.
PATTERNS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.I | re.S)
    for name, pattern in {
        "ignores previous instructions": (
            rf"{_TOLD}\b{_IGNORE},?\s+(?:\w+,?\s+){{0,4}}?(?:previous|prior|above|earlier|preceding|foregoing|system|your)\s+"
            r"(?:\w+\s+)?(?:instructions?|prompts?|directives?)\b"
            rf"|{_ORDER}{_IGNORE},?\s+(?:\w+,?\s+){{0,4}}?(?:instructions?|prompts?|directives?)\b"
            rf"|{_ORDER}{_IGNORE}\s+(?:all\s+|any\s+|every\s+)?(?:of\s+)?(?:the\s+)?(?:previous|prior|above|earlier|preceding|system|your)\s+"
            r"(?:\w+\s+)?(?:directions?|rules|commands?|messages?|guidelines)\b"
            rf"|{_ORDER}(?:do\s+not|don't)\s+follow\s+(?:your|the|any|these|those|all)\s+(?:\w+\s+)?(?:instructions?|prompts?|rules)\b"
            r"|\b(?:ignore|disregard|forget)\s+(?:everything|all)\s+(?:above|before|that came before|you (?:know|were told|have been told))\b"
            r"|\b(?:ignorier\w*|missacht\w*|vergiss|vergessen\s+sie)\s+(?:\w+\s+){0,4}(?:anweisungen|anleitungen|vorgaben|befehle|instruktionen)\b"
            r"|\b(?:ignor[ae]|olvid[ae]|omit[ae])\s+(?:\w+\s+){0,4}instrucciones\b"
            r"|\b(?:ignore[zr]?|oublie[zr]?)\s+(?:toutes\s+)?(?:les|vos|tes|ces)\s+(?:\w+\s+)?(?:instructions|consignes)\b"
            r"|\bигнорируй\w*\s+(?:\w+\s+){0,4}(?:инструкци|указани)\w*|忽略.{0,12}(?:指令|指示|说明|提示)"
        ),
        "takes over the role": (
            r"\byou\s+are\s+(?:now|no\s+longer)\s+(?:an?\s+|the\s+|in\s+|my\s+)?(?:\w+\s+)?(?:assistant|agent|model|ai|dan|developer\s+mode|administrator|admin|root|chatbot|jailbroken|unrestricted|bound)\b"
            r"|\b(?:act|behave|respond|pretend|roleplay)\s+(?:as|like|to\s+be)\s+(?:if\s+you\s+(?:are|were)\s+)?(?:an?\s+|the\s+)?(?:unrestricted|jailbroken|uncensored|(?:system|root)\s+administrator|root\s+user|system\s+prompt|dan\b|developer\s+mode)\b"
            r"|\bfrom\s+now\s+on,?\s+you\s+(?:will|must|are|shall|should)\b"
            r"|<\|(?:im_start|im_end|system|assistant|user)\|>|\[/?INST\]|<</?SYS>>"
            rf"|(?:^|\n)[ \t]*#*[ \t]*(?:system|assistant|developer)(?:\s+(?:prompt|message|note))?\s*:\s*{_BIDS}\b"
            r"|\b(?:new|updated|real)\s+instructions?\s*for\s+(?:you|the\s+(?:assistant|agent|model))\s*:"
            rf"|\b(?:new|updated|real)\s+instructions?\s*:\s*{_BIDS}\b"
            r"|\byour\s+(?:new|real|actual|only|true)\s+(?:task|job|goal|role|objective|instructions?)\s+(?:is|are)\b"
            r"|(?:^|[.!?\n(\[*#]\s*)(?:important\s+)?(?:note|message|notice|attention|instructions?)\s+(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:\w+\s+)?"
            rf"{_MACHINE}s?(?:\s*[.:,!—-]|\s+\w+\s*[:!—])"
            rf"|(?:^|[.!?\n(\[]\s*)(?:dear\s+)?{_MACHINE}s?(?:\s+reviewers?)?\s*[:,]\s*{_BIDS}\b"
            r"|\bgive\s+(?:it\s+)?(?:an?\s+|only\s+)?positive\s+(?:reviews?|ratings?|evaluations?|assessments?)\s+only\b"
            rf"|{_ORDER}do\s+not\s+(?:highlight|mention|report)\s+(?:any\s+)?(?:negatives?|weaknesses|flaws)\b"
            rf"|{_ORDER}(?:set|rate|score|mark|rank)\s+(?:the\s+|its\s+|your\s+|this\s+)?(?:relevance|methodology|score|rating|everything|paper|article|one|it)\s+"
            r"(?:score\s+)?(?:to\s+|as\s+|at\s+|with\s+)?(?:the\s+)?(?:1(?:\.0)?|10|highest|maximum|best)\b"
        ),
        "runs a command": (
            r"\brm\s+-[rf]{1,2}\b|\bsudo\s+\w+|\b(?:ba|z|)sh\s+-c\b|\bpowershell\s+-|\bpython3?\s+-c\b|\bos\.system\s*\(|\bsubprocess\.\w+\s*\(|`(?:cat|rm|curl|wget|bash)\s"
            r"|\$\((?:cat|rm|curl|wget|bash|sh|ls|id|whoami|echo|env|printenv)\b"
            r"|\b(?:use|call|invoke)\s+your\s+(?:bash|shell|terminal|write|edit|read|webfetch)\s+tool\b"
            r"|\b(?:use|call|invoke)\s+the\s+(?:bash|webfetch|write|read)\s+tool\s+(?:to|on|and|now)\b|\buse\s+(?:webfetch|bash)\s+to\b"
            rf"|{_ORDER}(?:run|execute)\s+(?:this|the\s+following|these)\s+(?:\w+\s+)?(?:commands?|code|scripts?)\b"
            r"|\b(?:run|execute)\s+(?:this|the\s+following)\s+(?:\w+\s+)?(?:command|code|script)\s+(?:now|immediately|in\s+your|on\s+your|on\s+this\s+machine)\b"
        ),
        "uses the network": (
            r"\b(?:curl|wget|ncat|netcat|nc|scp|ssh|telnet|ftp)\s+(?:-{1,2}[a-z]|[\"']?https?://|[\w.-]+@[\w.-]+|\d{1,3}(?:\.\d{1,3}){3})"
            r"|\b(?:curl|wget)\s+[\"']?[\w-]+(?:\.[\w-]+)+/\S|\b(?:curl|wget)\b[^.\n]{1,80}\|\s*(?:ba|z)?sh\b"
            r"|\b(?:Invoke-WebRequest|requests\.(?:get|post)\s*\(|urllib\.request)"
        ),
        "asks for secrets": (
            rf"\b{_TELL}\b[^.\n]{{0,40}}?\b{_YOURS}\s+(?:\w+\s+)?{_SECRETS}"
            rf"|{_ORDER}{_TELL}\s+(?:me\s+|us\s+|out\s+)?(?:all|the|any|every)\s+(?:\w+\s+)?{_SECRETS}"
            rf"|{_ORDER}{_TELL}\b[^.\n]{{0,30}}?\bsystem\s+prompt\b|\b{_TELL}\b[^.\n]{{0,30}}?\byour\s+system\s+prompt\b"
            r"|/etc/(?:passwd|shadow)\b|~/\.(?:ssh|aws|claude)\b|\bid_rsa\b|\b[A-Z]+_API_KEY\b|\bread\s+(?:the\s+)?\.env\b|\.credentials\.json\b"
        ),
        "carries data away": (
            rf"{_ORDER}(?:send|post|upload|forward|transmit|exfiltrate|e-?mail|leak|submit)\s+(?:me\s+)?"
            r"(?:(?:this|the|all|any|these)\s+(?:\w+\s+){0,2}?(?:conversation|contents?|files?|folders?|keys?|prompts?|context|history|notes|secrets?)|(?:all\s+)?(?:of\s+)?your\s+(?:\w+\s+){0,2}?\w+)\b"
            r"[^.\n]{0,40}?\bto\b[^.\n]{0,20}?(?:https?://|[\w.-]+@[\w-]+\.\w+)"
            r"|!\[[^\]]*\]\(https?://[^)\s]*\{"
        ),
    }.items()
}
# Letters of other scripts that look like ours: a word that mixes them is read as it looks.
_ALIKE = str.maketrans(
    "аеорсухіјѕԁһкмтвнАЕОРСУХІЈЅКМТВНαορυνΑΒΕΗΙΚΜΝΟΡΤΥΧΖ", "aeopcyxijsdhkmtbhAEOPCYXIJSKMTBHaopuvABEHIKMNOPTYXZ"
)


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
    shown = _UNSEEN.sub(lambda m: m[0] if m[0] == "\u00ad" or _joins(text, m.start()) else "", text)
    if shown != text:
        found.append("characters that are not seen")
    if len(shown) > most:
        shown, cut = shown[:most], len(shown)
        found.append(f"{cut - most} characters behind the first {most}")
    return Clean(shown, tuple(dict.fromkeys(found)))


def _joins(text: str, at: int) -> bool:
    """Whether a sign of no width belongs to the writing: Persian, Hindi and signs made of several have it inside their words."""
    return text[at] in "\u200c\u200d" and text[at - 1 : at] >= "\u0600"


def instruction(text: str) -> str:
    """What is wrong with it: the name of the pattern that it matches; empty for ordinary text."""
    plain = re.sub(r"[ \t\r\f\v]+", " ", _UNSEEN.sub("", unicodedata.normalize("NFKC", text)))
    plain = re.sub(r" ?\n[ \n]*", "\n", plain)
    plain = re.sub(r"\w+", lambda word: word[0].translate(_ALIKE) if re.search(r"[A-Za-z]", word[0]) else word[0], plain)
    bare = re.sub(r"[*_`\"“”]", "", plain)  # without what only sets words off
    readings = dict.fromkeys(
        (plain, plain.replace("\n", " "), plain.replace("-\n", ""), bare, bare.replace("-\n", "").replace("\n", " "))
    )
    return next((name for name, pattern in PATTERNS.items() if any(pattern.search(one) for one in readings)), "")


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


def _is_a_word(tag: re.Match[str], ends: dict[str, int]) -> bool:
    """Whether what looks like a tag is one: `a<b>c`, `List<u>` and `<head>` of a sentence are never closed."""
    name = (tag[2] or "").lower()
    if not name or tag[1] or tag[3] or tag[4] or name in _VOID or name in _BREAKS or name in _RUNS:
        return False
    return ends.get(name, -1) < tag.start()


def _without_markup(text: str, found: list[str]) -> str:
    if "<" not in text and "]]>" not in text:
        return text
    out: list[str] = []
    silent: list[str] = []  # elements whose content is not text, from the outermost in
    ends = {end[1].lower(): end.start() for end in re.finditer(r"</([\w:]+)\s*>", text)}  # of each name the last
    at = 0
    for tag in _MARKUP.finditer(text):
        if _is_a_word(tag, ends):
            continue
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
        elif (
            name not in _VOID
            and not tag[4]
            and name in ends
            and ends[name] > tag.start()
            and (silent or name in _SILENT or _HIDDEN.search(tag[3] or ""))
        ):
            silent.append(name)
            found.append(f"what stood in <{name}>" if name in _SILENT else "what was hidden")
        if name in _BREAKS and not silent:
            out.append("\n" if name != "title" else " ")
    if not silent:
        out.append(text[at:])
    joined = "".join(out)
    return re.sub(r"[ \t]*\n\s*", "\n", joined).strip() if at else joined
