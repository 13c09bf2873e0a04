"""Names as people see them. Those of files and of members of archives may hold anything: bytes that are not Unicode,
and control characters with which a terminal would move its cursor, change its title or hide what follows.
"""


def printable(text: str) -> str:
    """`text` with an escape such as \\x1b in place of each character that has no glyph, and a ? in place of each byte
    that Python could not decode."""
    if text.isprintable():
        return text
    decoded = text.encode(errors="replace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)


def is_utf8(name: str) -> bool:
    """Python marks the bytes of a name that are not by surrogates, which neither Arrow nor a terminal takes."""
    return name.encode(errors="replace").decode() == name
