"""No text can leave its place in the page."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from algorist.report.html import clean, el


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.title: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.title = dict(attrs).get("title")

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_any_text_comes_back_as_text_from_child_and_attribute(text: str) -> None:
    seen = Seen()
    seen.feed(el("p", {"title": text}, text))
    seen.close()
    assert seen.tags == ["p"]
    assert seen.text == clean(text)
    assert seen.title == clean(text)


def test_hidden_characters_are_shown() -> None:
    assert clean("a\u202eb\x1b[31m\r\n\t\x7f") == "a⟨U+202E⟩b␛[31m␍\n\t⟨U+007F⟩"
    assert clean("\ud800") == "⟨U+D800⟩"
