# SPDX-License-Identifier: Apache-2.0
"""A sentence is told to be in one language, always the same; a text that is too short is undecided."""

import pytest

from resources_servers.instruction_following.languages import detect_language, is_in_language, known_languages

SENTENCES = {
    "en": "The weather was very nice this morning and we went for a walk in the park.",
    "es": "El tiempo estaba muy bonito esta mañana y fuimos a dar un paseo por el parque.",
    "pt": "O tempo estava muito bonito esta manhã e nós fomos dar um passeio no parque.",
    "fr": "Le temps était très beau ce matin et nous sommes allés nous promener dans le parc.",
    "de": "Das Wetter war heute Morgen sehr schön und wir sind im Park spazieren gegangen.",
    "it": "Il tempo era molto bello questa mattina e siamo andati a fare una passeggiata nel parco.",
    "nl": "Het weer was vanmorgen erg mooi en we zijn een wandeling gaan maken in het park.",
    "fi": "Sää oli tänä aamuna hyvin kaunis ja me menimme kävelylle puistoon, mutta se oli lyhyt.",
    "pl": "Pogoda była bardzo ładna dziś rano i poszliśmy na spacer do parku.",
    "vi": "Thời tiết sáng nay rất đẹp và chúng tôi đã đi dạo trong công viên.",
    "sw": "Hali ya hewa ilikuwa nzuri sana asubuhi ya leo na sisi tulikwenda kutembea katika bustani.",
    "ru": "Погода сегодня утром была очень хорошая, и мы пошли гулять в парк.",
    "uk": "Погода сьогодні вранці була дуже гарна, і ми пішли гуляти в парк.",
    "ar": "كان الطقس جميلا جدا هذا الصباح وذهبنا في نزهة إلى الحديقة.",
    "hi": "आज सुबह मौसम बहुत अच्छा था और हम पार्क में घूमने गए।",
    "ko": "오늘 아침 날씨가 아주 좋아서 공원에 산책하러 갔습니다.",
    "ja": "今朝は天気がとても良かったので、公園へ散歩に行きました。",
    "zh-cn": "今天早上天气很好，我们去公园散步了。",
}


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_in_its_language_alone(code):
    assert [one for one in SENTENCES if is_in_language(SENTENCES[code], one)] == [code]


def test_a_language_is_told_in_the_same_way_every_time():
    said = "test-test test, more of a test than a text"
    assert len({detect_language(said) for _ in range(50)}) == 1


def test_an_english_sentence_without_common_words_is_in_no_other_language():
    said = "He said hello. Then he left."
    assert is_in_language(said, "en")
    assert not is_in_language(said, "fi")


@pytest.mark.parametrize("said", ["Bonjour", "ok", "1234 … !!", "[]", "***", "\ud800 \ud800"])
def test_a_text_that_is_too_short_is_in_no_language(said):
    assert detect_language(said) is None
    assert not any(is_in_language(said, code) for code in ("en", "fr", "de"))


def test_a_name_in_another_script_changes_nothing():
    assert is_in_language(SENTENCES["ru"] + " (see nemo-gym)", "ru")


@pytest.mark.parametrize("code", ["zh", "zh-cn", "ZH-CN "])
def test_chinese_may_be_asked_for_by_either_code(code):
    assert is_in_language(SENTENCES["zh-cn"], code)


def test_the_languages_of_the_reference_can_be_asked_for():
    codes = "en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi"
    assert set(codes.split()) <= known_languages()
