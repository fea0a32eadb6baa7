"""Words of all languages: the tokens of texts, given to the command line and to the estimator, are exactly these."""

from __future__ import annotations

import json
import math
import unicodedata
import warnings
from collections import Counter
from pathlib import Path

import pytest
from conftest import Ooc

from blocks import Dataset, RequestError
from samplers import LatentDirichletAllocation

# What is written, and its words.
SENTENCES = {
    "accents": ("Le café naïf, déjà vu.", ["le", "café", "naïf", "déjà", "vu"]),
    "accents as macOS writes them": (
        unicodedata.normalize("NFD", "Le café naïf, déjà vu."),
        ["le", "café", "naïf", "déjà", "vu"],
    ),
    "accents without a letter of their own": ("Kolẹ́ ọ̀rọ̀ m̀bọ̀", ["kolẹ́", "ọ̀rọ̀", "m̀bọ̀"]),
    "Arabic with vowels": ("كَتَبَ الوَلَدُ رِسَالَةً", ["كَتَبَ", "الوَلَدُ", "رِسَالَةً"]),
    "Bengali": ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
    "German": ("Die Straße ist größer", ["die", "straße", "ist", "größer"]),
    "Greek": ("Ο ΣΟΦΟΣ ΑΝΘΡΩΠΟΣ", ["σοφος", "ανθρωπος"]),
    "Hebrew with vowels": ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
    "Hindi": ("हिन्दी में लिखा हुआ पाठ।", ["हिन्दी", "में", "लिखा", "हुआ", "पाठ"]),
    "Persian with joiners": ("می‌خواهم کتاب‌ها", ["می‌خواهم", "کتاب‌ها"]),
    "Russian": ("Съешь ещё этих ЁЛОК", ["съешь", "ещё", "этих", "ёлок"]),
    "Tamil": ("தமிழ் மொழி இனிது", ["தமிழ்", "மொழி", "இனிது"]),
    "Turkish": ("İstanbul'da IŞIK", ["istanbul", "da", "işik"]),
    "Vietnamese": ("Tiếng Việt rất đẹp", ["tiếng", "việt", "rất", "đẹp"]),
    "Korean": ("한국어 문장입니다", ["한국어", "문장입니다"]),
}
SEGMENTED = {
    "chinese": ("我来到北京清华大学。", ["我", "来到", "北京", "清华大学"]),
    "japanese": ("今日は東京で寿司を食べました。", ["今日", "は", "東京", "で", "寿司", "を", "食べ", "まし", "た"]),
    "thai": ("วันนี้อากาศดีและร้อน", ["วันนี้", "อากาศ", "ดี", "และ", "ร้อน"]),
}


def words_of(path: Path, ooc: Ooc, *options: str) -> dict[str, int]:
    """How often each word is in the documents of a text file."""
    done = ooc("ingest", "text", path, path.with_suffix(""), "--lines", "--overwrite", *options)
    assert done.returncode == 0, done.stderr
    dataset = Dataset(path.with_suffix(""))
    words = [dataset.vocabulary()[word] for word in dataset.index.word_ids]
    return dict(zip(words, dataset.index.frequencies.tolist(), strict=True))


def fitted(texts: list[str], **parameters: object) -> LatentDirichletAllocation:
    return LatentDirichletAllocation(2, max_iter=1, n_jobs=1, random_state=0, **parameters).fit(texts)  # type: ignore[arg-type]


def test_words_are_those_of_each_language(tmp_path: Path, ooc: Ooc) -> None:
    """One run for all: a text of one word more would be another word."""
    (tmp_path / "all.txt").write_text("\n".join(text for text, _ in SENTENCES.values()), "utf-8")
    expected = Counter(word for _, words in SENTENCES.values() for word in words)
    assert words_of(tmp_path / "all.txt", ooc, "--stop-words", "none") == expected
    model = fitted([text for text, _ in SENTENCES.values()], stop_words=None)
    assert list(model.vocabulary_) == sorted(expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("language", SEGMENTED)
def test_words_without_spaces_between_them_are_found(language: str, tmp_path: Path, ooc: Ooc) -> None:
    text, words = SEGMENTED[language]
    (tmp_path / "in.txt").write_text(text, "utf-8")
    assert words_of(tmp_path / "in.txt", ooc, "--stop-words", "none", "--segment", language) == Counter(words)
    assert list(fitted([text], stop_words=None, segment=language).vocabulary_) == sorted(set(words))
    stopped = words_of(tmp_path / "in.txt", ooc, "--stop-words", language, "--segment", language)
    assert 0 < len(stopped) < len(words)
    more = ooc("ingest", "text", "in.txt", "more", "--lines", "--vocab-from", "in")  # segments as the first one did
    assert more.returncode == 0, more.stderr
    assert Dataset(tmp_path / "more").tokens == sum(stopped.values())


@pytest.mark.long
def test_words_that_run_together_are_told_of(tmp_path: Path, ooc: Ooc) -> None:
    texts = {
        "Chinese": "我来到北京清华大学",
        "Japanese": "今日は東京で寿司を食べました",
        "Thai": "วันนี้อากาศดีมากจริงๆนะครับ",
    }
    for language, text in texts.items():
        (tmp_path / "in.txt").write_text(f"{text}\n" * 2 + "with some English around it\n", "utf-8")
        told = ooc("ingest", "text", "in.txt", "out", "--lines", "--overwrite").stderr
        assert f"of the tokens are several words of {language}, which has no spaces" in told
        assert f"--segment {language.lower()}" in told
        with pytest.warns(
            UserWarning, match=f"several words of {language}, which has no spaces.*with segment {language.lower()}"
        ):
            fitted([text, text])
    (tmp_path / "in.txt").write_text("R0lGODlhAQABAIAAAAAAAP7yH5BAEAAAAALAAAAAABAAEAAAIBRAA7\n")
    assert "more than 40 letters" in ooc("ingest", "text", "in.txt", "out", "--lines", "--overwrite").stderr
    for _, (text, _) in SENTENCES.items():
        (tmp_path / "in.txt").write_text(text, "utf-8")
        assert not ooc("ingest", "text", "in.txt", "out", "--lines", "--overwrite", "--stop-words", "none").stderr


def test_stop_words_of_several_lists_in_any_spelling(tmp_path: Path, ooc: Ooc) -> None:
    """A language by its name or code, with a file, whose words are normalised as the text is."""
    (tmp_path / "mine.txt").write_text(unicodedata.normalize("NFD", "Café\nHaus\n"), "utf-8-sig")
    (tmp_path / "in.txt").write_text("The café und das Haus, aujourd'hui c'est nicht the tree", "utf-8")
    assert words_of(tmp_path / "in.txt", ooc, "--stop-words", "english,german,fr,mine.txt") == {"tree": 1}
    left = {"the": 2, "café": 1, "haus": 1, "aujourd": 1, "hui": 1, "est": 1, "tree": 1}
    assert words_of(tmp_path / "in.txt", ooc, "--stop-words", "de") == left
    refused = ooc("ingest", "text", "in.txt", "no", "--lines", "--stop-words", "english,klingon")
    assert refused.returncode == 2
    assert "klingon is neither a language nor a file" in refused.stderr
    assert list(fitted(["The café und das Haus and a tree"], stop_words="english,german").vocabulary_) == [
        "café", "haus", "tree"
    ]  # fmt: skip


def test_n_grams_cross_no_stop_word_and_no_end_of_a_sentence(tmp_path: Path, ooc: Ooc) -> None:
    text = 'New York of America. Big "apple." Red wine! Version 10.25 beta\n'
    (tmp_path / "in.txt").write_text(text)
    found = words_of(tmp_path / "in.txt", ooc, "--ngrams", "2")
    pairs = {word for word in found if "_" in word}
    assert pairs == {"new_york", "big_apple", "red_wine", "version_10", "10_25", "25_beta"}
    assert {word for word in fitted([text], ngram_range=(1, 2)).vocabulary_ if "_" in word} == pairs


@pytest.mark.long
def test_collocations_are_kept_by_their_mutual_information(tmp_path: Path, ooc: Ooc) -> None:
    """Against the formula, by hand: of each pair, tokens of its words and of both together."""
    texts = ["new york new york", "new car", "old car", "old york"]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    tokens = Counter(word for text in texts for word in text.split())
    pairs = Counter("_".join(pair) for text in texts for pair in zip(text.split(), text.split()[1:], strict=False))
    total = tokens.total()

    def npmi(pair: str) -> float:
        one, other = (tokens[word] / total for word in pair.split("_"))
        return math.log(pairs[pair] / total / (one * other)) / -math.log(pairs[pair] / total)

    for least in (-0.5, 0.0, 0.2, 0.5):
        options = ("--ngrams", "2", "--stop-words", "none", "--min-npmi", str(least))
        expected = tokens + Counter({pair: count for pair, count in pairs.items() if npmi(pair) >= least})
        assert words_of(tmp_path / "in.txt", ooc, *options) == expected
        model = fitted(texts, stop_words=None, ngram_range=(1, 2), min_npmi=least)
        assert list(model.vocabulary_) == sorted(expected)
    with pytest.raises(RequestError, match=r"min_npmi can only be used with ngram_range 2 or more\nAdd ngram_range 2"):
        fitted(texts, min_npmi=0.5)
    refused = ooc("ingest", "text", "in.txt", "no", "--lines", "--min-npmi", "0.5")
    assert (refused.returncode, "--min-npmi can only be used with --ngrams 2 or more" in refused.stderr) == (2, True)


@pytest.mark.long
def test_the_estimator_takes_the_options_of_the_command(tmp_path: Path, ooc: Ooc) -> None:
    texts = ["Apple pear apple", "apple PEAR plum", "pear fig", "Apple quince x1"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for parameters, options in (
        ({"min_df": 2}, ["--min-df", "2"]),
        ({"min_df": 0.5, "max_df": 0.75}, ["--min-df", "0.5", "--max-df", "0.75"]),
        ({"max_df": 2}, ["--max-df", "2"]),
        ({"max_features": 3}, ["--max-vocab", "3"]),
        ({"lowercase": False}, ["--no-lower"]),
        ({"token_pattern": r"\p{L}+"}, ["--token-pattern", r"\p{L}+"]),
        ({"ngram_range": (1, 3), "min_df": 1}, ["--ngrams", "3"]),
    ):
        done = ooc("ingest", "jsonl", "in.jsonl", "out", "--overwrite", *options)
        assert done.returncode == 0, done.stderr
        model, dataset = fitted(texts, **parameters), Dataset(tmp_path / "out")
        assert list(model.vocabulary_) == dataset.vocabulary()
        assert model.transform(texts).shape == (4, 2)
    with pytest.raises(RequestError, match="min_df, max_df and max_features keep none"):
        fitted(texts, min_df=4)
    for wrong in ({"ngram_range": (2, 2)}, {"ngram_range": 2}, {"min_df": -1}, {"max_df": 1.5}, {"segment": "latin"}):
        with warnings.catch_warnings(), pytest.raises(RequestError, match=next(iter(wrong))):
            fitted(texts, **wrong)
