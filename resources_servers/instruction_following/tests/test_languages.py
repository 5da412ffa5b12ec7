# SPDX-License-Identifier: Apache-2.0
"""A sentence is told to be in its language, and in no other that is not close to it."""

import pytest

from resources_servers.instruction_following.languages import is_in_language, languages_of

SENTENCES = {
    "en": "The weather was very nice this morning and we went for a walk in the park.",
    "es": "El tiempo estaba muy bonito esta mañana y fuimos a dar un paseo por el parque.",
    "pt": "O tempo estava muito bonito esta manhã e nós fomos dar um passeio no parque.",
    "fr": "Le temps était très beau ce matin et nous sommes allés nous promener dans le parc.",
    "de": "Das Wetter war heute Morgen sehr schön und wir sind im Park spazieren gegangen.",
    "it": "Il tempo era molto bello questa mattina e siamo andati a fare una passeggiata nel parco.",
    "nl": "Het weer was vanmorgen erg mooi en we zijn een wandeling gaan maken in het park.",
    "sv": "Vädret var mycket fint i morse och vi gick på en promenad i parken.",
    "fi": "Sää oli tänä aamuna hyvin kaunis ja me menimme kävelylle puistoon, mutta se oli lyhyt.",
    "pl": "Pogoda była bardzo ładna dziś rano i poszliśmy na spacer do parku.",
    "cs": "Počasí bylo dnes ráno velmi pěkné a šli jsme se projít do parku.",
    "ro": "Vremea a fost foarte frumoasă în această dimineață și am mers la o plimbare în parc.",
    "tr": "Bu sabah hava çok güzeldi ve parkta bir yürüyüşe çıktık.",
    "hu": "Az idő nagyon szép volt ma reggel, és elmentünk sétálni a parkba.",
    "id": "Cuaca pagi ini sangat bagus dan kami pergi berjalan-jalan di taman.",
    "vi": "Thời tiết sáng nay rất đẹp và chúng tôi đã đi dạo trong công viên.",
    "sw": "Hali ya hewa ilikuwa nzuri sana asubuhi ya leo na sisi tulikwenda kutembea katika bustani.",
    "ca": "El temps era molt bonic aquest matí i vam anar a fer un passeig pel parc.",
    "ru": "Погода сегодня утром была очень хорошая, и мы пошли гулять в парк.",
    "uk": "Погода сьогодні вранці була дуже гарна, і ми пішли гуляти в парк.",
    "bg": "Времето тази сутрин беше много хубаво и ние отидохме на разходка в парка.",
    "ar": "كان الطقس جميلا جدا هذا الصباح وذهبنا في نزهة إلى الحديقة.",
    "fa": "هوا امروز صبح بسیار خوب بود و ما برای پیاده روی به پارک رفتیم.",
    "ur": "آج صبح موسم بہت اچھا تھا اور ہم پارک میں سیر کے لیے گئے۔",
    "hi": "आज सुबह मौसम बहुत अच्छा था और हम पार्क में घूमने गए।",
    "mr": "आज सकाळी हवामान खूप छान होते आणि आम्ही उद्यानात फिरायला गेलो.",
    "ne": "आज बिहान मौसम धेरै राम्रो थियो र हामी पार्कमा घुम्न गयौं।",
    "bn": "আজ সকালে আবহাওয়া খুব সুন্দর ছিল এবং আমরা পার্কে হাঁটতে গিয়েছিলাম।",
    "pa": "ਅੱਜ ਸਵੇਰੇ ਮੌਸਮ ਬਹੁਤ ਵਧੀਆ ਸੀ।",
    "gu": "આજે સવારે હવામાન ખૂબ સરસ હતું.",
    "ta": "இன்று காலை வானிலை மிகவும் நன்றாக இருந்தது.",
    "te": "ఈ ఉదయం వాతావరణం చాలా బాగుంది.",
    "kn": "ಇಂದು ಬೆಳಿಗ್ಗೆ ಹವಾಮಾನ ತುಂಬಾ ಚೆನ್ನಾಗಿತ್ತು.",
    "ml": "ഇന്ന് രാവിലെ കാലാവസ്ഥ വളരെ നല്ലതായിരുന്നു.",
    "th": "เช้านี้อากาศดีมากและเราไปเดินเล่นในสวนสาธารณะ",
    "ko": "오늘 아침 날씨가 아주 좋아서 공원에 산책하러 갔습니다.",
    "he": "מזג האוויר היה יפה מאוד הבוקר והלכנו לטייל בפארק.",
    "el": "Ο καιρός ήταν πολύ ωραίος σήμερα το πρωί.",
    "ja": "今朝は天気がとても良かったので、公園へ散歩に行きました。",
    "zh": "今天早上天气很好，我们去公园散步了。",
}


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_in_its_language_alone(code):
    assert languages_of(SENTENCES[code]) == {code}


@pytest.mark.parametrize("code", ["da", "no"])
def test_languages_that_are_close_are_both_possible(code):
    said = {"da": "Vejret var meget smukt, og vi gik en tur.", "no": "Været var veldig fint, og vi gikk en tur."}[code]
    assert is_in_language(said, code)
    assert not is_in_language(said, "de")


def test_a_word_or_two_may_be_in_any_language_of_the_script():
    assert is_in_language("Bonjour", "fr")
    assert not is_in_language("Bonjour", "ru")


def test_a_name_in_another_script_changes_nothing():
    assert languages_of(SENTENCES["ru"] + " (see nemo-gym)") == {"ru"}


def test_what_has_no_letters_is_in_no_language():
    assert languages_of("1234 … !!") == frozenset()


def test_a_language_that_cannot_be_told_is_refused():
    with pytest.raises(ValueError, match="tlh"):
        is_in_language("nuqneH", "tlh")
