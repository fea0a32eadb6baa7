"""Stop word lists, by language or from a file."""

from __future__ import annotations

from pathlib import Path

from blocks.corpus.tokenization_rules import TOKEN_PATTERN, compiled_pattern
from blocks.errors import RequestError

# Languages of the stopwords-iso project by ISO 639-1 code; `english` is this project's own list.
LANGUAGES = {
    "af": "afrikaans", "ar": "arabic", "bg": "bulgarian", "bn": "bengali", "br": "breton", "ca": "catalan",
    "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english", "eo": "esperanto", "es": "spanish",
    "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish",
    "gl": "galician", "gu": "gujarati", "ha": "hausa", "he": "hebrew", "hi": "hindi", "hr": "croatian",
    "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "ja": "japanese", "ko": "korean",
    "ku": "kurdish", "la": "latin", "lt": "lithuanian", "lv": "latvian", "mr": "marathi", "ms": "malay",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sk": "slovak", "sl": "slovenian", "so": "somali", "st": "sotho", "sv": "swedish", "sw": "swahili", "th": "thai",
    "tl": "tagalog", "tr": "turkish", "uk": "ukrainian", "ur": "urdu", "vi": "vietnamese", "yo": "yoruba",
    "zh": "chinese", "zu": "zulu",
}  # fmt: skip
_CODES = {name: code for code, name in LANGUAGES.items()}


def read_stop_words(names: str) -> tuple[str, ...]:
    """Return the words of several lists, sorted.

    names: `none`, or a comma-separated list of languages (`german` or `de`) and files with one word per line.
    Raises RequestError for an unknown language or an unreadable file.
    """
    if names == "none":
        return ()
    words: set[str] = set()
    for name in [names] if Path(names).is_file() else names.split(","):
        words |= _list_of(name.strip())
    return tuple(sorted(words))


def _list_of(name: str) -> set[str]:
    if name in ("english", "en"):
        return _lines(Path(__file__).with_name("stop_words_english.txt"))
    if name in _CODES or name in LANGUAGES:
        return _of_language(_CODES.get(name, name))
    return _lines(Path(name))


def _of_language(code: str) -> set[str]:
    """Return the stop words of a language, and the parts into which the default pattern splits words such as
    aujourd'hui."""
    import stopwordsiso

    words, find = stopwordsiso.stopwords(code), compiled_pattern(TOKEN_PATTERN).findall
    return {*words, *(part for word in words if " " not in word for part in find(word))}


def _lines(path: Path) -> set[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"--stop-words: {path} is neither a language nor a file that can be read ({error})",
            "Use languages such as english or de, or files with one word per line, separated by commas; or none.",
        ) from None
    return {word.strip() for word in text.split("\n")} - {""}
