"""Units of measure, money and counted things that may follow a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_Row = tuple[str, str, str]  # names, base dimension with exponent, factor

_TABLE: tuple[_Row, ...] = (
    ("m meter meters metre metres 米", "m", "1"), ("cm centimeter centimeters centimetre centimetres 厘米 公分", "m",
    "1/100"),
    ("mm millimeter millimeters millimetre millimetres 毫米", "m", "1/1000"),
    ("dm decimeter decimeters 分米", "m", "1/10"),
    ("km kilometer kilometers kilometre kilometres 千米 公里", "m", "1000"), ("nm nanometer nanometers", "m",
    "1/1000000000"),
    ("in inch inches", "m", "127/5000"), ("ft foot feet", "m", "381/1250"), ("yd yard yards", "m", "1143/1250"),
    ("mi mile miles", "m", "201168/125"), ("里", "m", "500"), ("hectare hectares ha 公顷", "m2", "10000"),
    ("acre acres", "acre", "1"),
    ("L l liter liters litre litres 升", "m3", "1/1000"), ("mL ml milliliter milliliters 毫升", "m3", "1/1000000"),
    ("gal gallon gallons", "gallon", "1"), ("quart quarts qt", "gallon", "1/4"), ("pint pints", "gallon", "1/8"),
    ("g gram grams 克", "g", "1"), ("kg kilogram kilograms 千克 公斤", "g", "1000"),
    ("mg milligram milligrams 毫克", "g",
    "1/1000"),
    ("t tonne tonnes 吨", "g", "1000000"), ("ton tons", "ton", "1"), ("lb lbs pound pounds", "lb", "1"),
    ("oz ounce ounces", "lb", "1/16"),
    ("s sec secs second seconds 秒 秒钟", "s", "1"), ("ms millisecond milliseconds", "s", "1/1000"),
    ("min mins minute minutes 分钟", "s", "60"), ("h hr hrs hour hours 小时 时", "s", "3600"), ("day days 天 日", "s",
    "86400"),
    ("week weeks 周 星期", "s", "604800"), ("month months 月 个月", "month", "1"),
    ("year years yr yrs 年", "month", "12"),
    ("usd USD dollar dollars 美元", "usd", "1"), ("cent cents ¢", "usd", "1/100"), ("yuan RMB CNY 元 块", "yuan", "1"), ("角",
    "yuan", "1/10"), ("分钱", "yuan", "1/100"),
    ("euro euros EUR", "eur", "1"), ("pounds_sterling GBP", "gbp", "1"), ("yen 日元", "yen", "1"), ("rupee rupees", "inr", "1"),
    ("mph", "m s-1", "1397/3125"), ("kph kmh", "m s-1", "5/18"), ("rad radian radians", "rad", "1"),
    ("J joule joules 焦", "J", "1"), ("kJ", "J", "1000"), ("eV", "eV", "1"), ("erg ergs", "J", "1/10000000"),
    ("N newton newtons 牛", "N", "1"),
    ("W watt watts 瓦", "W", "1"), ("kW", "W", "1000"), ("Pa pascal pascals", "Pa", "1"), ("kPa", "Pa", "1000"),
    ("V volt volts", "V", "1"),
    ("A amp amps ampere amperes", "A", "1"), ("Hz hertz", "s-1", "1"), ("K kelvin", "K", "1"), ("mol mole moles",
    "mol", "1"),
    ("ohm ohms", "ohm", "1"), ("cal calorie calories", "cal", "1"), ("kcal", "cal", "1000"), ("pc parsec parsecs",
    "pc", "1"), ("kpc", "pc", "1000"),
    ("Mpc", "pc", "1000000"), ("dyne dynes", "N", "1/100000"), ("AU", "AU", "1"), ("percent", "percent", "1"),
    ("dozen", "dozen", "1"), ("celsius", "celsius", "1"), ("fahrenheit", "fahrenheit", "1"),
)  # fmt: skip

SINGLE = frozenset({"m", "s", "g", "h", "L", "l", "t", "J", "N", "W", "V", "A", "K", "C"})
"""One-letter names: units only where a text font says so."""

_PER_ONE = {"unit", "units", "个", "the", "of", "in", "each", "total", "about", "square_unit", "只", "a", "per_one"}
_PAUSES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "平方": 2, "立方": 3}
_AFTER = {"squared": 2, "cubed": 3}


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of base dimensions with a factor; nouns are the words that are no unit of measure."""

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction
    nouns: frozenset[str]


_KNOWN: dict[str, tuple[dict[str, int], Fraction]] = {}
for _names, _base, _factor in _TABLE:
    _dims: dict[str, int] = {}
    for _part in _base.split():
        _match = re.fullmatch(r"([A-Za-z]+)(-?\d+)?", _part)
        assert _match is not None, f"unit table: a dimension is letters and an exponent, got {_part}"
        _dims[_match[1]] = int(_match[2] or 1)
    for _name in _names.split():
        _KNOWN[_name] = (_dims, Fraction(_factor))
_SPLIT = re.compile(r"[A-Za-z_]+|[^\x00-\x7f]+|-?\d+|[/^¢]")

WORDS = frozenset(name for name in _KNOWN if len(name) > 1 and name.isascii()) | {"degree", "degrees", "deg"}
"""Names that are units wherever they follow a value, in any font."""


@lru_cache(4096)
def parse(text: str) -> Unit | None:
    """The unit a phrase names; None where it names none.

    >>> parse("km/h").factor
    Fraction(5, 18)
    >>> parse("sheep").nouns
    frozenset({'sheep'})
    """
    dims: dict[str, int] = {}
    factor, nouns = Fraction(1), set[str]()
    sign, pending = 1, 1
    last: tuple[dict[str, int], Fraction, int] | None = None
    tokens = [part for token in _SPLIT.findall(text) for part in _chinese(token)]
    for position, token in enumerate(tokens):
        if token in ("/", "per", "每"):
            sign = -1
        elif token == "^":
            continue
        elif token.lstrip("-").isdigit():
            if last and position and tokens[position - 1] in ("^", "unit", "units", *_KNOWN):
                _multiply(dims, last[0], last[2] * (int(token) - 1))
                factor *= last[1] ** (last[2] * (int(token) - 1)) if abs(int(token)) < 10 else 1
        elif token in _PAUSES:
            pending = _PAUSES[token]
        elif token in _AFTER and last:
            _multiply(dims, last[0], last[2] * (_AFTER[token] - 1))
            factor *= last[1] ** (last[2] * (_AFTER[token] - 1))
        elif token in _KNOWN or token.lower() in _KNOWN:
            base, size = _KNOWN.get(token) or _KNOWN[token.lower()]
            _multiply(dims, base, sign * pending)
            factor *= size ** (sign * pending)
            last, pending, sign = (base, size, sign), 1, 1
        elif token in ("unit", "units"):  # square units are not cubic units
            base, size = {"unit": 1}, Fraction(1)
            _multiply(dims, base, sign * pending)
            last, pending, sign = (base, size, sign), 1, 1
        elif token.lower() not in _PER_ONE:
            nouns.add(_singular(token.lower()))
    if dims == {"unit": 1}:
        dims = {}
    cleaned = tuple(sorted((name, exponent) for name, exponent in dims.items() if exponent))
    if not cleaned and not nouns:
        return None
    return Unit(cleaned, factor, frozenset(nouns))


def within(name: str, first: str) -> str:
    """The unit that 分 is after another one: minutes after hours, a hundredth after yuan."""
    unit = parse(first)
    if name != "分" or unit is None:
        return name
    return {"s": "分钟", "yuan": "分钱"}.get(unit.dimensions[0][0], name) if unit.dimensions else name


def _multiply(dims: dict[str, int], base: dict[str, int], exponent: int) -> None:
    for name, power in base.items():
        dims[name] = dims.get(name, 0) + power * exponent


def _chinese(token: str) -> list[str]:
    """平方厘米 is 平方 and 厘米."""
    if token.isascii() or token in _KNOWN:
        return [token]
    for prefix in ("平方", "立方", "每"):
        if token.startswith(prefix):
            return [prefix, *_chinese(token[len(prefix) :])] if len(token) > len(prefix) else [prefix]
    return [token]


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def ratio(a: str, b: str) -> Fraction | str | None:
    """Factor that turns a value in unit a into unit b; 'conflict' for two nouns that differ, None for two dimensions.

    >>> ratio("km", "m"), ratio("cents", "dollars"), ratio("m", "kg"), ratio("apples", "oranges")
    (Fraction(1000, 1), Fraction(1, 100), None, 'conflict')
    """
    u, v = parse(a), parse(b)
    if u is None or v is None:
        return Fraction(1)
    if u.dimensions and v.dimensions:
        return u.factor / v.factor if u.dimensions == v.dimensions else None
    if u.nouns & v.nouns:
        return Fraction(1)
    return "conflict"
