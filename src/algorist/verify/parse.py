"""Tokens of one expression to a tree: recursive descent with bounded depth, no backtracking.

Containers inside brackets are read by `read`, which hands itself in as `inner`, so that this module knows only scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import final

from algorist.verify import names, numerals, tree, units, vectors
from algorist.verify.lex import FUNCTION_WORDS, OPERATORS, Token
from algorist.verify.tree import MAX_DEPTH, Node, Unreadable, fn, num, sym
from algorist.verify.vocabulary import ACCENTS, APPLIED, CLOSER, GREEK, NAMES, NOT_OPERANDS, PREFIXES, STOPS, TIMES

Inner = Callable[[Sequence[Token], str, str, int], Node]
"""(tokens between brackets, opening, closing, depth) -> what the bracket holds."""


def matching(tokens: Sequence[Token], start: int) -> int:
    """Index of the token that closes the bracket at `start`; any of ) ] closes any of ( [, as intervals are written."""
    opening = tokens[start].text
    wide = opening in "(["
    depth = 0
    closing = CLOSER[opening]
    for index in range(start, len(tokens)):
        text = tokens[index].text
        if text == opening or (wide and text in ("(", "[")):
            depth += 1
        elif text == closing or (wide and text in (")", "]")):
            depth -= 1
            if depth == 0:
                return index
    raise Unreadable("grammar")


@final
class Parser:
    """One expression over a list of tokens; `position` says how far it got."""

    def __init__(self, tokens: Sequence[Token], inner: Inner, depth: int = 0) -> None:
        self.tokens = list(tokens)
        self.inner = inner
        self.position = 0
        self.depth = depth
        self.bars = 0
        self.bodies = 0
        if depth > MAX_DEPTH:
            raise Unreadable("bound")

    # tokens

    def peek(self, ahead: int = 0) -> Token:
        index = self.position + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("end", "")

    def take(self) -> Token:
        token = self.peek()
        self.position += 1
        return token

    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    def group(self) -> Parser:
        """A parser over the bracket at the current position, which is passed."""
        end = matching(self.tokens, self.position)
        inside = self.tokens[self.position + 1 : end]
        self.position = end + 1
        return Parser(inside, self.inner, self.depth + 1)

    # grammar

    def expression(self) -> Node:
        """term (+|- term)*; a plus-minus sign becomes a function that `read` resolves."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("bound")
        terms = [self.term()]
        while (text := self.peek().text) in ("+", "-", r"\pm", r"\mp"):
            self.take()
            terms.append(self.signed(text, self.term()))
        self.depth -= 1
        return vectors.add(terms)

    @staticmethod
    def signed(sign: str, node: Node) -> Node:
        if sign == "-" and node.op in ("deg", "pct", "unit"):  # the mark belongs to the signed number
            return Node(node.op, (tree.neg(node.args[0]),), node.value)
        if sign == "-":
            return vectors.mul([tree.MINUS_ONE, node])
        if sign in (r"\pm", r"\mp"):
            return Node("fn", (node,), "pm" if sign == r"\pm" else "mp")
        return node

    def term(self) -> Node:
        """[sign] factor ((times|divided by|juxtaposed) factor)*"""
        signs = []
        while self.peek().text in ("+", "-", r"\pm", r"\mp"):
            signs.append(self.take().text)
            if len(signs) > 8:
                raise Unreadable("grammar")
        node = self.product(stop_at_functions=False)
        for sign in reversed(signs):
            node = self.signed(sign, node)
        return node

    def product(self, *, stop_at_functions: bool) -> Node:
        node = self.mixed()
        while True:
            token = self.peek()
            if token.text in TIMES and not stop_at_functions:
                self.take()
                sign = self.take().text if self.peek().text in ("+", "-") else "+"
                node = vectors.mul([node, self.signed(sign, self.mixed())])
            elif token.text in ("/", r"\div") and not stop_at_functions:
                self.take()
                sign = self.take().text if self.peek().text in ("+", "-") else "+"
                node = vectors.mul([node, tree.power(self.signed(sign, self.denominator()), tree.MINUS_ONE)])
            elif stop_at_functions and (self.starts_function(token) or self.ends_argument(token)):
                return node
            elif self.starts_operand(token):
                if token.kind == "num":
                    self.refuse_digit_after_digit()
                node = vectors.mul([node, self.factor()])
            else:
                return node

    def ends_argument(self, token: Token) -> bool:
        """cos x(1 - y) is cos(x) (1 - y), but sin 2(x + 1) is sin(2(x + 1))."""
        return token.text in ("(", "[", r"\{", "|") and self.tokens[self.position - 1].kind != "num"

    def denominator(self) -> Node:
        """What a slash divides by: 1/2x is x/2, but 1/sqrt2 and 1/(2a) are whole."""
        return self.factor()

    def refuse_digit_after_digit(self) -> None:
        before = self.tokens[self.position - 1]
        if before.kind == "num" or before.text == "}":
            raise Unreadable("grammar")

    def mixed(self) -> Node:
        """A mixed number, 3 1/4 or 3\\frac14, or a factor."""
        whole = self.peek()
        if whole.kind == "num" and whole.text.isdigit():
            mark = self.position
            fraction = self.proper_fraction()
            if fraction is not None:
                return self.marked(num(numerals.number(whole.text) + fraction))
            self.position = mark
        return self.factor()

    def marked(self, node: Node) -> Node:
        """A mixed number with its percent or degree mark."""
        if self.peek().text in (r"\%", "%"):
            self.take()
            return Node("pct", (node,))
        if self.peek().text == "^" and self.peek(1).text == r"\circ":
            self.position += 2
            return self.temperature(node) or Node("deg", (node,))
        return node

    def proper_fraction(self) -> Fraction | None:
        """The fraction of a mixed number after its whole part; leaves the position anywhere where there is none."""
        self.take()
        if self.peek().text == r"\frac":
            tokens, mark = list(self.tokens), self.position
            self.take()
            parts = [self.digits_argument(), self.digits_argument()]
            if None not in parts:
                top, bottom = (numerals.number(part) for part in parts if part is not None)
                if 0 < top < bottom:
                    return top / bottom
            self.tokens, self.position = tokens, mark
            return None
        top_token, slash, bottom_token = self.peek(), self.peek(1), self.peek(2)
        if top_token.kind == "num" == bottom_token.kind and slash.text == "/":
            top, bottom = numerals.number(top_token.text), numerals.number(bottom_token.text)
            if 0 < top < bottom and top.denominator == bottom.denominator == 1 and self.peek(3).text != "^":
                self.position += 3
                return top / bottom
        return None

    def digits_argument(self) -> str | None:
        """A command's argument where it is a plain natural number."""
        token = self.peek()
        if token.kind == "num" and token.text.isdigit():
            self.split_digit()
            return self.take().text
        if (
            token.text == "{"
            and self.peek(1).kind == "num"
            and self.peek(2).text == "}"
            and self.peek(1).text.isdigit()
        ):
            self.position += 3
            return self.tokens[self.position - 2].text
        return None

    def split_digit(self) -> None:
        """TeX takes one digit as an argument: \\frac43 is 4/3."""
        text = self.peek().text
        if len(text) > 1 and text.isdigit():
            self.tokens[self.position : self.position + 1] = [Token("num", text[0]), Token("num", text[1:])]

    def starts_operand(self, token: Token) -> bool:
        if token.kind == "num":
            return True
        if token.kind == "let":
            return not self.is_glue(token.text) and not (
                token.text in units.WORDS or token.text in STOPS or names.is_noun(token.text)
            )
        if token.text == "|":
            return self.bars == 0
        if token.kind == "op":
            return token.text in ("(", "[", "{")
        return token.kind == "cmd" and token.text not in NOT_OPERANDS

    def is_glue(self, text: str) -> bool:
        """`of the pie`, `by symmetry`: short words between a value and a noun, not products of letters."""
        following = self.peek(1)
        return text in ("of", "the", "per") or (
            text in ("by", "at", "in", "as", "on") and following.kind == "let" and names.is_noun(following.text)
        )

    @staticmethod
    def starts_function(token: Token) -> bool:
        return token.text.lstrip("\\") in FUNCTION_WORDS

    def factor(self) -> Node:
        """primary with its powers, factorials, percent and degree marks."""
        node = self.primary()
        while True:
            token = self.peek()
            if token.text == "^" and self.peek(1).text == r"\circ":
                self.position += 2
                node = self.temperature(node) or Node("deg", (node,))
            elif token.text == "^":
                self.take()
                node = self.raised(node)
            elif token.text == "!":
                self.take()
                if self.peek().text == "!":
                    raise Unreadable("operator")
                node = tree.factorial(node)
            elif token.text in (r"\%", "%"):
                self.take()
                node = Node("pct", (node,))
            else:
                return node

    def temperature(self, value: Node) -> Node | None:
        """The C or F after a degree sign at the end of the text."""
        name = {"C": "celsius", "F": "fahrenheit"}.get(self.peek().text)
        if name is None or self.peek(1).kind != "end":
            return None
        self.take()
        return Node("unit", (value,), name)

    def raised(self, base: Node) -> Node:
        if self.peek().text in ("T", r"\top", r"\prime", r"\dagger", "*", "+") or (
            self.peek().text == "{" and self.peek(1).text in ("T", r"\top", r"\prime", "*") and self.peek(2).text == "}"
        ):
            mark = self.argument_text()
            if base.op == "matrix" and mark in ("T", r"\top"):
                return vectors.transpose(base)
            if mark in ("T", r"\top") and (base.op == "tuple" or (base.op == "interval" and base.value == "()")):
                return vectors.matrix([[entry] for entry in base.args])
            return Node("fn", (base,), f"app:^{mark}")
        exponent = self.argument(split=False)
        if base.op == "matrix":
            raise Unreadable("operator")
        return tree.power(base, exponent)

    def argument(self, *, split: bool) -> Node:
        """The argument of a command or of ^: a group, or one token."""
        token = self.peek()
        if token.text == "{":
            parser = self.group()
            return parser.whole()
        if split:
            self.split_digit()
        if token.text in ("-", "+"):
            self.take()
            return self.signed(token.text, self.argument(split=split))
        if token.kind == "let" and len(token.text) > 1 and token.text not in NAMES and token.text not in FUNCTION_WORDS:
            self.tokens[self.position : self.position + 1] = [Token("let", ch) for ch in token.text]
        return self.primary()

    def whole(self) -> Node:
        """The expression, which must use every token."""
        if self.at_end():
            raise Unreadable("grammar")
        node = self.expression()
        if not self.at_end():
            raise Unreadable("grammar")
        return node

    def argument_text(self) -> str:
        """A group or one token as text, for subscripts and opaque things."""
        if self.peek().text == "{":
            end = matching(self.tokens, self.position)
            text = "".join(t.text for t in self.tokens[self.position + 1 : end])
            self.position = end + 1
            return text
        return self.take().text

    def primary(self) -> Node:
        token = self.take()
        text = token.text
        if token.kind == "num":
            return self.numeral(text)
        if token.kind == "let":
            return self.letters(text)
        if token.kind == "word" and len(text) <= 3 and text.isascii() and text.isalpha() and text not in STOPS:
            return self.letters(text)
        if text == "|":
            return self.absolute()
        if text in CLOSER:
            return self.bracket(text)
        if token.kind == "cmd":
            return self.command(text)
        raise Unreadable("grammar")

    def numeral(self, text: str) -> Node:
        if "." in text and self.peek().text == r"\ldots":  # 0.1666... leaves open what follows
            raise Unreadable("grammar")
        if self.peek().text == "_":
            self.take()
            return Node("base", (), f"{text}_{numerals.base(self.argument_text())}")
        if self.peek().text in (r"\overline", r"\dot") and "." in text + ("." if self.peek(-2).text == "." else ""):
            self.take()
            return num(numerals.repeating(text, self.argument_text()))
        if self.peek().text == "." and self.peek(1).text in (r"\overline", r"\dot"):
            self.position += 2
            return num(numerals.repeating(text + ".", self.argument_text()))
        return num(numerals.number(text))

    def letters(self, text: str) -> Node:
        if text in OPERATORS and text not in ("inf", "diff", "limit", "solve", "Sum"):
            return self.operator(text)
        if text in FUNCTION_WORDS:
            return self.function(text)
        if text in NAMES and (len(text) == 1 or text != "e"):
            if text == "e" and self.peek().text == "_":
                return self.symbol(text)
            return self.symbol(text) if self.peek().text in ("_", "'") else NAMES[text]
        if text in GREEK:
            return self.symbol("\\" + text)
        for name in ("sqrt", "sin", "cos", "tan", "ln", "log", "pi"):
            if text.startswith(name) and len(text) <= len(name) + 2:
                self.tokens[self.position : self.position] = [Token("let", text[len(name) :])]
                return self.letters(name)
        if len(text) > 1:
            self.tokens[self.position : self.position] = [Token("let", ch) for ch in text[1:]]
            return self.letters(text[0])
        return self.symbol(text)

    def symbol(self, name: str) -> Node:
        """A symbol with its subscript and primes; applied where it is written as a function."""
        if self.peek().text == "_":
            self.take()
            name += "_" + self.argument_text().replace(" ", "")
            if name[:2] in ("C_", "A_") and self.peek().text == "^" and (chosen := self.chosen(name)) is not None:
                return chosen
        while self.peek().text == "'" or (self.peek().text == "^" and _is_prime(self.peek(1), self.peek(2))):
            if self.take().text == "^":
                self.argument_text()
            name += "'"
        if self.peek().text == "(" and self.is_application(name):
            argument = self.group().inner_or_whole(self)
            return Node("fn", (argument,), f"app:{name}")
        return sym(name)

    def inner_or_whole(self, outer: Parser) -> Node:
        return outer.inner(self.tokens, "(", ")", self.depth)

    def chosen(self, name: str) -> Node | None:
        """C_n^k and A_n^k with numbers: combinations and arrangements, as Chinese textbooks write them."""
        before, mark = list(self.tokens), self.position
        self.take()
        top = self.digits_argument()
        n = name[2:]
        if top is None or not n.isdigit() or len(n) > 3 or len(top) > 3 or not 1 <= int(top) <= int(n):
            self.tokens, self.position = before, mark
            return None
        combinations = tree.binomial(num(int(n)), num(int(top)))
        return combinations if name[0] == "C" else tree.mul([combinations, tree.factorial(num(int(top)))])

    def is_application(self, name: str) -> bool:
        """f(...) for the usual function letters; y(0), u(t) and the like for others: one number or one letter
        inside."""
        if name[0] in APPLIED or "'" in name:
            return True
        single = self.peek(2).text == ")" and (self.peek(1).kind == "num" or self.peek(1).kind == "let")
        return single and (self.peek(1).kind == "num" or len(self.peek(1).text) == 1)

    def absolute(self) -> Node:
        self.bars += 1
        node = self.expression()
        if self.take().text != "|":
            raise Unreadable("grammar")
        self.bars -= 1
        if node.op in ("matrix", "tuple", "interval"):
            raise Unreadable("operator")
        return fn("abs", node)

    def bracket(self, opening: str) -> Node:
        self.position -= 1
        if opening in (r"\lfloor", r"\lceil"):
            return fn("floor" if opening == r"\lfloor" else "ceil", self.group().whole())
        end = matching(self.tokens, self.position)
        closing = self.tokens[end].text
        inside = self.tokens[self.position + 1 : end]
        self.position = end + 1
        if opening == "{":
            return Parser(inside, self.inner, self.depth + 1).whole()
        return self.inner(inside, opening, closing, self.depth + 1)

    def command(self, text: str) -> Node:
        name = text[1:]
        if text == r"\frac":
            return self.fraction()
        if text == r"\binom":
            return tree.binomial(self.argument(split=True), self.argument(split=True))
        if text == r"\sqrt":
            return self.root()
        if text in (r"\pi", r"\infty"):
            return self.symbol("\\pi") if text == r"\pi" and self.peek().text == "_" else NAMES[name]
        if name in OPERATORS:
            return self.operator(name)
        if name in FUNCTION_WORDS:
            return self.function(name)
        if name in GREEK:
            return self.symbol(text)
        if text in PREFIXES:
            self.skip_name()
            return sym(text + "".join(t.text for t in self.tokens[self.position - self.bodies : self.position]))
        if text in ACCENTS:
            return self.symbol(f"{text}{{{self.argument_text()}}}")
        if text == r"\textcircled":
            return sym(f"({self.argument_text()})")
        if text == r"\begin":
            return self.environment()
        if text in (r"\ldots", r"\vdots", r"\ddots"):
            return sym(r"\ldots")
        if text == r"\emptyset":
            return Node("set", ())
        if text in (r"\mathbin", r"\mathrel", r"\mathord"):
            return self.argument(split=False)
        raise Unreadable("grammar")

    def skip_name(self) -> None:
        """Letters after \\angle: how many tokens they take goes to `bodies`."""
        self.bodies = 0
        while self.peek().kind in ("let", "num", "word"):
            self.take()
            self.bodies += 1

    def fraction(self) -> Node:
        first = self.peek(1) if self.peek().text == "{" else self.peek()
        if first.text in ("d", r"\partial") or (first.kind == "let" and first.text[:1] == "d" and len(first.text) == 2):
            mark = self.position
            top, bottom = self.argument_text(), self.argument_text()
            if bottom[:1] == "d" or bottom.startswith(r"\partial"):
                return sym(f"{top}/{bottom}".replace("{", "").replace("}", ""))
            self.position = mark
        top_node = self.argument(split=True)
        bottom_node = self.argument(split=True)
        return vectors.mul([top_node, tree.power(bottom_node, tree.MINUS_ONE)])

    def root(self) -> Node:
        order: Node = num(2)
        if self.peek().text == "[":
            order = self.group().whole()
        radicand = self.argument(split=False)
        return tree.power(radicand, tree.power(order, tree.MINUS_ONE))

    def function(self, word: str) -> Node:
        name = FUNCTION_WORDS[word]
        base: Node | None = num(10) if name == "log10" else None
        exponent: Node | None = None
        while self.peek().text in ("_", "^"):
            if self.take().text == "_":
                base = self.argument(split=False)
            else:
                exponent = self.argument(split=False)
        if exponent == tree.MINUS_ONE and name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
            name, exponent = "arc" + name, None
        if word == "sqrt" and self.peek().text == "[":
            self.position -= 1
            self.take()
        argument = self.function_argument()
        if name == "log10":
            node = vectors.mul([tree.fn("ln", argument), tree.power(tree.fn("ln", base or num(10)), tree.MINUS_ONE)])
        elif name == "sqrt":
            node = tree.sqrt(argument)
        else:
            node = fn(name, argument)
        return node if exponent is None else tree.power(node, exponent)

    def function_argument(self) -> Node:
        """A bracket, or the factors up to a sign, a slash or another function: sin 2x is sin(2x)."""
        token = self.peek()
        if token.text in ("(", "[", "{"):
            node = self.bracket(self.take().text)
            if token.text == "{" and self.peek().text == "^":
                return node
            return node
        if token.text == "-":
            self.take()
            return self.signed("-", self.product(stop_at_functions=True))
        if self.starts_function(token):
            return self.factor()
        return self.product(stop_at_functions=True)

    def operator(self, name: str) -> Node:
        """An unevaluated operation: opaque, with everything up to the end of the tokens as its text."""
        if name == "inf":
            if self.at_end():
                return tree.INF
            name = "inf_"
        rest = "".join(t.text for t in self.tokens[self.position :])
        self.position = len(self.tokens)
        return Node("fn", (sym(rest),), f"op:{name}")

    def environment(self) -> Node:
        """\\begin{matrix} rows \\end{matrix} in any of its dialects."""
        kind = self.argument_text()
        if kind == "array" and self.peek().text == "{":
            self.argument_text()
        if "matrix" not in kind and kind != "array":
            raise Unreadable("grammar")
        rows: list[list[list[Token]]] = [[[]]]
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise Unreadable("grammar")
            if token.text == r"\end" and depth == 0:
                self.argument_text()
                break
            depth += (token.text == r"\begin") - (token.text == r"\end")
            if token.text == "&" and depth == 0:
                rows[-1].append([])
            elif token.text == r"\cr" and depth == 0:
                rows.append([[]])
            elif token.text != r"\hline":
                rows[-1][-1].append(token)
        if rows[-1] == [[]]:
            rows.pop()
        cells = [[Parser(cell, self.inner, self.depth + 1).whole() for cell in row] for row in rows]
        return vectors.matrix(cells, "|" if kind == "vmatrix" else "")


def _is_prime(first: Token, second: Token) -> bool:
    return first.text == r"\prime" or (first.text == "{" and second.text == r"\prime")
