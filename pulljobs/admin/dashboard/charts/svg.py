"""Elements of SVG, escaped by the library that writes them."""

from xml.etree.ElementTree import Element, SubElement, tostring

from django.utils.safestring import SafeString, mark_safe


def drawing(height: int, label: str) -> Element:
    """As wide as its place."""
    return Element(
        "svg",
        {"class": "pj-drawing", "height": str(height), "width": "100%", "role": "img"},
        **{"aria-label": label},
    )


def stretched(parent: Element, height: int) -> Element:
    """Of 100 by 100, over the whole width."""
    return add(
        parent,
        "svg",
        width="100%",
        height=height,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
    )


def add(parent: Element, tag: str, text: str = "", /, **attributes: float | str) -> Element:
    """Underscores are written as hyphens, but for one at the end."""
    named = {name.rstrip("_").replace("_", "-"): _text(one) for name, one in attributes.items()}
    child = SubElement(parent, tag, named)
    child.text = text or None
    return child


def written(drawn: Element) -> SafeString:
    return mark_safe(tostring(drawn, encoding="unicode"))


def _text(value: float | str) -> str:
    """Hundredths are finer than any screen."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
