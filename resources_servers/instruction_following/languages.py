# SPDX-License-Identifier: Apache-2.0
"""Which language a text is in, told by its script, its letters and its most common words.

A heuristic with no model behind it, for texts of a sentence or more. Where several languages fit equally, because the
text is short or the languages are close (Danish and Norwegian), all of them count.
"""

import re
from collections import Counter

_READ_CHARACTERS = 20_000
_CLOSE_TO_BEST = 0.85

_SCRIPTS = {
    "Latin": "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ",
    "Cyrillic": "Ѐ-ӿ",
    "Arabic": "؀-ۿݐ-ݿﭐ-﷿ﹰ-﻿",
    "Devanagari": "ऀ-ॿ",
    "Bengali": "ঀ-৿",
    "Gurmukhi": "਀-੿",
    "Gujarati": "઀-૿",
    "Tamil": "஀-௿",
    "Telugu": "ఀ-౿",
    "Kannada": "ಀ-೿",
    "Malayalam": "ഀ-ൿ",
    "Thai": "฀-๿",
    "Hangul": "ᄀ-ᇿ㄰-㆏가-힯",
    "Hebrew": "֐-׿",
    "Greek": "Ͱ-Ͽἀ-῿",
    "Kana": "぀-ヿ",
    "Han": "㐀-䶿一-鿿",
}
_IN_SCRIPT = {name: re.compile(f"[{characters}]") for name, characters in _SCRIPTS.items()}
_ONE_LANGUAGE = {
    "Bengali": "bn",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Thai": "th",
    "Hangul": "ko",
    "Hebrew": "he",
    "Greek": "el",
}
_COMMON_WORDS = {
    "Latin": {
        "en": "the of and to in is that it was for on are as with his they be at this have from or had by but not "
        "what all were we when your can there an which their will would you i how",
        "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este "
        "sí porque esta entre cuando muy sin sobre también me hasta hay donde son está",
        "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem "
        "à seu sua ou ser quando muito há nos já está eu também só pelo pela até isso são você",
        "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec "
        "son aux cette ou mais comme on nous vous ils elle être leur à été ces je",
        "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden "
        "aus er hat dass sie nach wird bei einer um am sind noch wie einem über so ich wir",
        "it": "di e il la che in un a per è una sono non del i con si da le dei nel alla della più anche come gli "
        "al ma lo se questo ha delle o suo questa essere nella cui ci mi",
        "nl": "de van een het en in is dat op te zijn met voor niet aan er om ook als dan maar bij nog uit wordt ik "
        "je door naar heeft worden over hij deze kan was of die we",
        "sv": "och i att det som en på är av för med till den har de inte om ett han men var jag sig från vi så kan "
        "när man du eller vid också efter under där skulle detta",
        "da": "og i at det som en på er af for med til den har de ikke om et han men var jeg sig fra vi så kan når "
        "man du eller ved også efter under der skulle dette",
        "no": "og i at det som en på er av for med til den har de ikke om et han men var jeg seg fra vi så kan når "
        "man du eller ved også etter under der skulle dette",
        "fi": "ja on ei että se oli hän mutta ovat joka kun niin kuin myös tai sen jos minä mitä voi vain hyvin "
        "mukaan ole olla sekä jossa tämä jotka ovat siitä vuoden kanssa jälkeen he me",
        "pl": "w i na z się nie do to że jest o a jak po co od za przez ale dla tak są czy oraz jego który ich "
        "tylko być może przy jej już ze która które tym",
        "cs": "a v se na je že s z do o to i ve k pro za by ale si po jako tak od jeho které který jsou nebo jen "
        "při už také byl mezi aby co není",
        "ro": "de și în a la cu nu o pe se că un este din pentru mai care sunt sau ce dar ca au fost lui el ei prin "
        "după fi această acest când foarte îi",
        "tr": "ve bir bu da de için ile olarak çok daha olan gibi ne var en kadar sonra ancak her o ama ise diye mi "
        "yok veya değil ben sen biz tarafından olduğu",
        "hu": "a az és hogy nem is egy ez de meg csak van volt mint már el vagy ki még be fel ha azt kell lehet "
        "pedig sem azonban után minden én",
        "id": "yang dan di dengan untuk dari pada ini itu dalam adalah tidak ke akan juga saya oleh sebagai ada "
        "atau mereka karena bisa kita dapat lebih anda telah sudah kami",
        "vi": "và là của có không được cho một các những trong với người này đã để khi đến từ như tôi về cũng nhiều "
        "thì ra lại làm sẽ rất ở nếu",
        "sw": "na ya wa kwa ni katika za la kuwa cha hii au kama yake lakini pia wakati watu hiyo huo sana zaidi "
        "wao yao mimi kila vya hivyo baada bila sisi",
        "ca": "de la i el que a en un les per amb una és els del no es al més com va d'un però ser seva aquest "
        "aquesta també són entre quan molt sobre hi ha dels seu",
    },
    "Cyrillic": {
        "ru": "и в не на что я с он как это по но они мы из у за от так же для вы был бы его ее то все или когда "
        "если уже только есть быть этот также",
        "uk": "і в не на що я з він як це та до але вони ми із у за від так для ви був його її все або коли якщо "
        "вже тільки є бути цей також який які",
        "bg": "и в не на че с той като това по но те ние от за със така да се съм са беше е му я всичко или когато "
        "ако вече само има бъде този също който са ще си",
    },
    "Arabic": {
        "ar": "في من على أن إلى هذا التي عن الذي مع هذه كان لا ما هو هي كل بعد قد أو ذلك بين كما لم ثم عند إن يكون حيث",
        "fa": "و در به از که این است را با برای آن یک می ها خود تا شود بر هم کرد بود شده اما یا هر باید من نیز کند",
        "ur": "کے کی میں ہے اور سے کا کو اس پر ہیں نے یہ بھی ایک کر تھا جو تو نہیں کیا ان وہ گیا لیے ہو کہ تک",
    },
    "Devanagari": {
        "hi": "है के में की और का से को पर यह ने एक भी हैं कि लिए इस कर ही तो नहीं वह था जो हो या अपने तक साथ",
        "mr": "आहे आणि च्या या ते तो ही हे एक मध्ये असे होते नाही आहेत साठी पण करून त्या म्हणून किंवा होता मी आपण केले त्यांनी",
        "ne": "छ र को मा हो यो पनि गर्न गरेको छन् लागि एक भने नेपाल तथा भएको थियो उनले तर हुन् त्यो गर्ने यस हामी म",
    },
}
# Letters that set a language apart from most of those in the same script.
_OWN_LETTERS = {
    "uk": "іїєґ",
    "ru": "ыэё",
    "ur": "ٹڈڑںےہھ",
    "fa": "پچژگ",
    "ar": "ةىأإ",
    "vi": "ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđ",
    "es": "ñ¿¡",
    "pt": "ãõ",
    "fr": "èêœç",
    "de": "äöüß",
    "sv": "äöå",
    "fi": "äö",
    "da": "æøå",
    "no": "æøå",
    "pl": "ąćęłńśźż",
    "cs": "ěřůčšž",
    "ro": "ășț",
    "tr": "ışğ",
    "hu": "őű",
}
_WORDS = {
    script: {code: frozenset(listed.split()) for code, listed in languages.items()}
    for script, languages in _COMMON_WORDS.items()
}
_WORD = re.compile(r"[ऀ-ॿ]+|[^\W\d_]+(?:['’][^\W\d_]+)?")  # vowel signs of Devanagari are not of the class \w
_ALIASES = {"zh-cn": "zh", "zh-tw": "zh", "nb": "no", "nn": "no"}

LANGUAGES = frozenset(
    {*_ONE_LANGUAGE.values(), "ja", "zh", *_ALIASES, *(code for codes in _COMMON_WORDS.values() for code in codes)}
)
"""The codes that can be asked for."""


def is_in_language(text: str, code: str) -> bool:
    """Return whether `text` is in the language, or may be; ValueError for a language that is not known here."""
    wanted = code.strip().lower()
    if wanted not in LANGUAGES:
        raise ValueError(f"language {code!r} cannot be told; those that can: {', '.join(sorted(LANGUAGES))}")
    return _ALIASES.get(wanted, wanted) in languages_of(text)


def languages_of(text: str) -> frozenset[str]:
    """Return the languages that `text` may be in; none if it has no letters of a script that is known here."""
    sample = text[:_READ_CHARACTERS].lower()
    counts = Counter({script: len(pattern.findall(sample)) for script, pattern in _IN_SCRIPT.items()})
    # Japanese is written in both, Chinese in one of them.
    if counts["Kana"] and counts["Kana"] * 20 > counts["Han"]:
        counts["Kana"] += counts.pop("Han")
    script, most = counts.most_common(1)[0]
    if not most:
        return frozenset()
    if script == "Kana":
        return frozenset({"ja"})
    if script == "Han":
        return frozenset({"zh"})
    if script in _ONE_LANGUAGE:
        return frozenset({_ONE_LANGUAGE[script]})
    return _by_words(sample, script)


def _by_words(sample: str, script: str) -> frozenset[str]:
    found = Counter(_WORD.findall(sample))
    scores: dict[str, float] = {}
    for code, common in _WORDS[script].items():
        scores[code] = sum(count for word, count in found.items() if word in common)
        scores[code] += sum(sample.count(letter) for letter in _OWN_LETTERS.get(code, ""))
    best = max(scores.values())
    return frozenset(code for code, score in scores.items() if score >= _CLOSE_TO_BEST * best)
