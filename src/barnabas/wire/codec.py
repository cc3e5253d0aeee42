"""The codec: for a structure and a version it writes the Python function that decodes it, and the one that encodes it.

Bytes come from a frame and go into one. A function is made when it is first asked for, which takes about a millisecond,
and kept; a broker that only ever sees a dozen versions makes a dozen.

What is made is straight code: fields of fixed size that follow each other are one call of `struct`, arrays are loops,
nothing is looked up at run time. For Heartbeat v4 the decoder is about

    def decode(data, p):
        end = len(data)
        m0 = new(HeartbeatRequest)
        n = data[p]; p += 1                    compact string: length + 1, mostly one byte
        ...
        (m0.generation_id,) = unpack0(data, p); p += 4

Rule 1: every length is compared with the bytes that are left before anything is made of it.
Rule 2: whatever is wrong with the bytes is a DecodeError; whatever is wrong with a message of ours is an assertion.
Rule 3: an encoded message is a list of parts. Records that lie in a file stay there: their part is the slice itself.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from barnabas.wire.primitives import DecodeError, read_unsigned_varint, skip_tagged_fields, unsigned_varint
from barnabas.wire.schema import FIXED, WireField, wire_fields

Part = Any
"""Bytes, or a slice of a file that has a `size`."""

Decoder = Callable[[bytes | memoryview, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Part]]

BYTES = (bytes, bytearray, memoryview)


class Shape(NamedTuple):
    """What a function is made for."""

    version: int
    is_flexible: bool


@cache
def decoder_for(structure: type, version: int, is_flexible: bool) -> Decoder:
    """Return the function that reads a structure in one version: (data, position) -> (message, position behind it)."""
    decode = _Decoding(Shape(version, is_flexible)).compile(structure)

    def checked(data: bytes | memoryview, position: int) -> tuple[Any, int]:
        try:
            message: tuple[Any, int] = decode(data, position)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise DecodeError(f"{structure.__name__} v{version}: {error}") from None
        return message

    return checked


@cache
def encoder_for(structure: type, version: int, is_flexible: bool) -> Encoder:
    """Return the function that writes a structure in one version, as a list of parts."""
    return _Encoding(Shape(version, is_flexible)).compile(structure)


def _present(structure: type, shape: Shape) -> tuple[list[WireField], list[WireField]]:
    """Return the fields that this version has: those in order, and the tagged ones."""
    here = [field for field in wire_fields(structure) if field.versions.has(shape.version)]
    return [f for f in here if f.tag is None], [f for f in here if f.tag is not None]


class _Source:
    """The text of a function that is being written, and the objects that it names."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "DecodeError": DecodeError,
            "BYTES": BYTES,
            "new": object.__new__,
            "read_unsigned_varint": read_unsigned_varint,
            "skip_tagged_fields": skip_tagged_fields,
            "unsigned_varint": unsigned_varint,
            "unpack_many": struct.unpack_from,
            "pack_many": struct.pack,
        }
        self.indent = 1
        self._counter = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.indent + line for line in lines]

    def name(self, prefix: str, value: Any) -> str:
        """Give an object a name in the function."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.variable(prefix)
        self.names[name] = value
        return name

    def variable(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def finish(self, head: str, name: str) -> Any:
        scope = dict(self.names)
        exec("\n".join([head, *self.lines]), scope)
        return scope[name]


def _format(letters: str) -> str:
    return ">" + letters


class _Decoding:
    """Writes the decoder of a structure."""

    def __init__(self, shape: Shape) -> None:
        self._source = _Source(shape)
        self._shape = shape

    def compile(self, structure: type) -> Decoder:
        add = self._source.add
        add("end = len(data)")
        message = self._structure(structure)
        add(f"return {message}, p")
        decoder: Decoder = self._source.finish("def decode(data, p):", "decode")
        return decoder

    def _structure(self, structure: type) -> str:
        """Write what reads a structure, and return the variable it is in."""
        source = self._source
        message = source.variable("m")
        source.add(f"{message} = new({source.name('C', structure)})")
        present, tagged = _present(structure, self._shape)
        for field in wire_fields(structure):
            if field not in present:
                source.add(f"{message}.{field.name} = {self._default(field)}")
        group: list[WireField] = []
        for field in present:
            if field.kind in FIXED:
                group.append(field)
                continue
            self._fixed(message, group)
            group = []
            self._value(f"{message}.{field.name}", field)
        self._fixed(message, group)
        if self._shape.is_flexible:
            self._tagged(message, tagged)
        return message

    def _default(self, field: WireField) -> str:
        if isinstance(field.default, list):
            return "[]"
        return self._source.name("D", field.default) if field.kind == "struct" else repr(field.default)

    def _fixed(self, message: str, group: list[WireField]) -> None:
        """Read fields of fixed size that follow each other in one call."""
        if not group:
            return
        form = struct.Struct(_format("".join(FIXED[field.kind] for field in group)))
        unpack = self._source.name("unpack", form.unpack_from)
        targets = ", ".join(f"{message}.{field.name}" for field in group)
        self._source.add(f"{targets}, = {unpack}(data, p)", f"p += {form.size}")

    def _value(self, target: str, field: WireField) -> None:
        """Write what reads one field that is not of fixed size."""
        if field.kind == "array":
            self._array(target, field)
        elif field.kind == "struct":
            self._nested(target, field)
        elif field.kind in FIXED:
            form = struct.Struct(_format(FIXED[field.kind]))
            unpack = self._source.name("unpack", form.unpack_from)
            self._source.add(f"{target}, = {unpack}(data, p)", f"p += {form.size}")
        else:
            self._variable(target, field.kind, field.nullable.has(self._shape.version), field.name)

    def _length(self, width: str) -> None:
        """Read a length into `n`; null is -1."""
        source = self._source
        if self._shape.is_flexible:
            source.add("n = data[p]", "p += 1", "if n > 127:", "    n, p = read_unsigned_varint(data, p - 1)", "n -= 1")
        else:
            form = struct.Struct(_format(width))
            source.add(f"n, = {source.name('unpack', form.unpack_from)}(data, p)", f"p += {form.size}")

    def _null(self, target: str, is_nullable: bool, name: str) -> None:
        """Begin the branch for null."""
        self._source.add("if n < 0:")
        if is_nullable:
            self._source.add("    if n != -1:", f"        raise DecodeError('{name} has a length of %d' % n)")
            self._source.add(f"    {target} = None")
        else:
            self._source.add(f"    raise DecodeError('{name} is null')")
        self._source.add("else:")

    def _variable(self, target: str, kind: str, is_nullable: bool, name: str) -> None:
        source = self._source
        self._length("h" if kind == "string" else "i")
        self._null(target, is_nullable, name)
        made = {"string": "str(data[p:e], 'utf-8')", "bytes": "bytes(data[p:e])", "records": "data[p:e]"}[kind]
        source.add(
            "    e = p + n",
            "    if e > end:",
            f"        raise DecodeError('{name} ends at byte %d, but there are only %d' % (e, end))",
            f"    {target} = {made}",
            "    p = e",
        )

    def _array(self, target: str, field: WireField) -> None:
        source = self._source
        self._length("i")
        self._null(target, field.nullable.has(self._shape.version), field.name)
        source.indent += 1
        # Every item takes a byte at least, so that a short frame can not ask for a long list.
        least = struct.calcsize(_format(FIXED[field.item])) if field.item in FIXED else 1
        source.add(f"if n * {least} > end - p:", f"    raise DecodeError('{field.name} has %d items' % n)")
        if field.item in FIXED:
            assert isinstance(field.item, str)
            source.add(f"{target} = list(unpack_many('>' + '{FIXED[field.item]}' * n, data, p))", f"p += n * {least}")
        else:
            items = source.variable("l")
            source.add(f"{items} = {target} = []", "for _ in range(n):")
            source.indent += 1
            if isinstance(field.item, str):
                self._variable("v", field.item, False, field.name)
                source.add(f"{items}.append(v)")
            else:
                assert field.item is not None
                source.add(f"{items}.append({self._structure(field.item)})")
            source.indent -= 1
        source.indent -= 1

    def _nested(self, target: str, field: WireField) -> None:
        assert isinstance(field.item, type)
        source = self._source
        if not field.nullable.has(self._shape.version):
            source.add(f"{target} = {self._structure(field.item)}")
            return
        # In a tagged field Kafka says null by 0, elsewhere by -1.
        null = "data[p - 1] == 0" if field.tag is not None else "data[p - 1] > 127"
        source.add("p += 1", f"if {null}:", f"    {target} = None", "else:")
        source.indent += 1
        source.add(f"{target} = {self._structure(field.item)}")
        source.indent -= 1

    def _tagged(self, message: str, tagged: list[WireField]) -> None:
        source = self._source
        if not tagged:
            source.add("if data[p]:", "    p = skip_tagged_fields(data, p)", "else:", "    p += 1")
            return
        count, tag, stop = source.variable("t"), source.variable("tag"), source.variable("stop")
        source.add(f"{count}, p = read_unsigned_varint(data, p)", f"while {count}:")
        source.indent += 1
        source.add(
            f"{count} -= 1",
            f"{tag}, p = read_unsigned_varint(data, p)",
            f"{stop}, p = read_unsigned_varint(data, p)",
            f"{stop} += p",
            f"if {stop} > end:",
            f"    raise DecodeError('a tagged field ends at byte %d, but there are only %d' % ({stop}, end))",
        )
        for field in tagged:
            source.add(f"if {tag} == {field.tag}:")
            source.indent += 1
            self._value(f"{message}.{field.name}", field)
            source.add(f"if p != {stop}:", f"    raise DecodeError('{field.name} does not fill its tagged field')")
            source.indent -= 1
        source.add(f"p = {stop}")
        source.indent -= 1


class _Encoding:
    """Writes the encoder of a structure. `out` grows; at records that lie in a file it is cut."""

    def __init__(self, shape: Shape) -> None:
        self._source = _Source(shape)
        self._shape = shape

    def compile(self, structure: type) -> Encoder:
        self._source.add("out = bytearray()", "parts = [out]")
        self._structure("m", structure, "out")
        self._source.add("return parts")
        encoder: Encoder = self._source.finish("def encode(m):", "encode")
        return encoder

    def _structure(self, message: str, structure: type, out: str) -> None:
        present, tagged = _present(structure, self._shape)
        group: list[WireField] = []
        for field in present:
            if field.kind in FIXED:
                group.append(field)
                continue
            self._fixed(message, group, out)
            group = []
            self._value(f"{message}.{field.name}", field, out)
        self._fixed(message, group, out)
        if self._shape.is_flexible:
            self._tagged(message, tagged, out)

    def _fixed(self, message: str, group: list[WireField], out: str) -> None:
        if not group:
            return
        form = struct.Struct(_format("".join(FIXED[field.kind] for field in group)))
        pack = self._source.name("pack", form.pack)
        self._source.add(f"{out} += {pack}({', '.join(f'{message}.{field.name}' for field in group)})")

    def _value(self, value: str, field: WireField, out: str) -> None:
        is_nullable = field.nullable.has(self._shape.version)
        if field.kind == "array":
            self._array(value, field, out)
        elif field.kind == "struct":
            self._nested(value, field, is_nullable, out)
        elif field.kind in FIXED:
            form = struct.Struct(_format(FIXED[field.kind]))
            self._source.add(f"{out} += {self._source.name('pack', form.pack)}({value})")
        else:
            self._variable(value, field.kind, is_nullable, out)

    def _length(self, length: str, width: str, out: str) -> None:
        source = self._source
        if self._shape.is_flexible:
            source.add(f"n = {length} + 1", "if n < 128:", f"    {out}.append(n)", "else:")
            source.add(f"    {out} += unsigned_varint(n)")
        else:
            source.add(f"{out} += {source.name('pack', struct.Struct(_format(width)).pack)}({length})")

    def _null(self, value: str, is_nullable: bool, width: str, out: str) -> None:
        """Begin the branch for what is not null."""
        if not is_nullable:
            self._source.add(f"assert {value} is not None, 'a field that can not be null is'", "if True:")
            return
        null = r"b'\0'" if self._shape.is_flexible else repr(struct.pack(_format(width), -1))
        self._source.add(f"if {value} is None:", f"    {out} += {null}", "else:")

    def _variable(self, value: str, kind: str, is_nullable: bool, out: str) -> None:
        source = self._source
        width = "h" if kind == "string" else "i"
        source.add(f"v = {value}")
        self._null("v", is_nullable, width, out)
        source.indent += 1
        if kind == "string":
            source.add("v = v.encode()")
        if kind == "records":
            source.add("size = len(v) if isinstance(v, BYTES) else v.size")
            self._length("size", width, out)
            assert out == "out", "records are never in a tagged field"
            source.add("if isinstance(v, BYTES):", "    out += v", "else:", "    out = bytearray()")
            source.add("    parts += (v, out)")
        else:
            self._length("len(v)", width, out)
            source.add(f"{out} += v")
        source.indent -= 1

    def _array(self, value: str, field: WireField, out: str) -> None:
        source = self._source
        items = source.variable("l")
        source.add(f"{items} = {value}")
        self._null(items, field.nullable.has(self._shape.version), "i", out)
        source.indent += 1
        self._length(f"len({items})", "i", out)
        if isinstance(field.item, str) and field.item in FIXED:
            source.add(f"{out} += pack_many('>' + '{FIXED[field.item]}' * len({items}), *{items})")
        else:
            item = source.variable("i")
            source.add(f"for {item} in {items}:")
            source.indent += 1
            if isinstance(field.item, str):
                self._variable(item, field.item, False, out)
            else:
                assert field.item is not None
                source.add("pass")
                self._structure(item, field.item, out)
            source.indent -= 1
        source.indent -= 1

    def _nested(self, value: str, field: WireField, is_nullable: bool, out: str) -> None:
        assert isinstance(field.item, type)
        source = self._source
        inner = source.variable("s")
        source.add(f"{inner} = {value}")
        if is_nullable:
            null = r"b'\0'" if field.tag is not None else r"b'\xff'"
            source.add(f"if {inner} is None:", f"    {out} += {null}", "else:", rf"    {out} += b'\x01'")
        else:
            source.add("if True:")
        source.indent += 1
        source.add("pass")
        self._structure(inner, field.item, out)
        source.indent -= 1

    def _tagged(self, message: str, tagged: list[WireField], out: str) -> None:
        source = self._source
        if not tagged:
            source.add(f"{out}.append(0)")
            return
        tags, count = source.variable("t"), source.variable("c")
        source.add(f"{tags} = bytearray()", f"{count} = 0")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            assert field.tag is not None
            is_needed = f"{message}.{field.name} != {source.name('D', field.default)}"
            if field.kind == "struct" and field.nullable.has(self._shape.version):
                # Who finds no such field takes an empty structure for its value, so null has to be said.
                is_needed = "True"
            source.add(f"if {is_needed}:")
            source.indent += 1
            source.add(f"{count} += 1")
            if field.kind in FIXED:
                size = struct.calcsize(_format(FIXED[field.kind]))
                source.add(f"{tags} += {unsigned_varint(field.tag) + unsigned_varint(size)!r}")
                self._value(f"{message}.{field.name}", field, tags)
            else:
                content = source.variable("o")
                source.add(f"{content} = bytearray()")
                self._value(f"{message}.{field.name}", field, content)
                source.add(f"{tags} += {unsigned_varint(field.tag)!r} + unsigned_varint(len({content}))")
                source.add(f"{tags} += {content}")
            source.indent -= 1
        assert len(tagged) < 128, "the number of tagged fields has one byte"
        source.add(f"{out}.append({count})", f"{out} += {tags}")
