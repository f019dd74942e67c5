package filter

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// roots are the names with which a path may begin.
var roots = []string{"input", "output", "error", "caller", "metadata"}

// keepNodes is how much of its index a document keeps for the next payload.
const keepNodes = 1 << 14

// Document is what filters are evaluated on. It is parsed when a filter first
// looks at it, once for all of them, and can be used for one payload after
// the other without allocating. The zero value is a document that is not
// JSON. Not for use by several goroutines at once.
type Document struct {
	raw     []byte
	tape    tape
	state   state
	isInput bool // raw is the input itself, not an object with the roots
	scratch []byte
}

type state uint8

const (
	notRead state = iota
	isJSON
	notJSON
)

// Input makes the document one whose only root is input, which is payload.
// The payload must not change while filters are evaluated.
func (d *Document) Input(payload []byte) *Document { return d.reset(payload, true) }

// Roots makes the document the JSON object raw, whose members are the roots;
// other members are nobody's business.
func (d *Document) Roots(raw []byte) *Document { return d.reset(raw, false) }

func (d *Document) reset(raw []byte, isInput bool) *Document {
	d.raw, d.isInput, d.state = raw, isInput, notRead
	return d
}

// IsJSON says whether the document can be read. One that cannot matches only
// the empty filter.
func (d *Document) IsJSON() bool {
	if d.state == notRead {
		d.read()
	}
	return d.state == isJSON
}

func (d *Document) read() {
	if cap(d.tape.nodes) > keepNodes {
		d.tape.nodes = nil
	}
	d.state = notJSON
	if d.tape.parse(d.raw) && (d.isInput || d.tape.nodes[0].kind == object) {
		d.state = isJSON
	}
}

// Member is the text of a member of the input, if that is an object and the
// member a string or a number; empty otherwise. Equal numbers have equal texts.
func (d *Document) Member(name string) string {
	if !d.IsJSON() {
		return ""
	}
	input := d.root("input")
	if input == none || d.tape.nodes[input].kind != object {
		return ""
	}
	n := d.member(input, name)
	if n == none {
		return ""
	}
	switch v := &d.tape.nodes[n]; v.kind {
	case text:
		return string(d.text(v))
	case number:
		return strconv.FormatFloat(d.float(v)+0, 'g', -1, 64)
	default:
		return ""
	}
}

// root is the value of a root; none if there is none.
func (d *Document) root(name string) uint32 {
	switch {
	case !d.isInput:
		return d.member(0, name)
	case name == "input":
		return 0
	default:
		return none
	}
}

// at follows a path from a value; none if there is nothing.
func (d *Document) at(n uint32, path []segment) uint32 {
	for _, s := range path {
		if n == none {
			return none
		}
		switch d.tape.nodes[n].kind {
		case object:
			n = d.member(n, s.name)
		case array:
			n = d.element(n, s.index)
		default:
			return none
		}
	}
	return n
}

// member is the value of an object's last key of that name.
func (d *Document) member(n uint32, name string) uint32 {
	nodes, found := d.tape.nodes, none
	for key := n + 1; key < nodes[n].next; key = nodes[key+1].next {
		if d.isText(&nodes[key], name) {
			found = key + 1
		}
	}
	return found
}

// element is an array's element; none for an index below 0 or beyond the end.
func (d *Document) element(n uint32, index int) uint32 {
	nodes := d.tape.nodes
	for e := n + 1; index >= 0 && e < nodes[n].next; e = nodes[e].next {
		if index == 0 {
			return e
		}
		index--
	}
	return none
}

// isText says whether a string is s, which most are not by their length.
func (d *Document) isText(n *node, s string) bool {
	if n.escaped {
		return string(d.text(n)) == s
	}
	return int(n.end-n.start) == len(s) && string(d.tape.raw[n.start:n.end]) == s
}

// text is a string's text, until the next call.
func (d *Document) text(n *node) []byte {
	raw := d.tape.raw[n.start:n.end]
	if !n.escaped {
		return raw
	}
	d.scratch = appendUnescaped(d.scratch[:0], raw)
	return d.scratch
}

// float is a number as a double; infinite if it is too large for one.
func (d *Document) float(n *node) float64 {
	f, _ := strconv.ParseFloat(string(d.tape.raw[n.start:n.end]), 64)
	return f
}

// bytes is a value as it is written.
func (d *Document) bytes(n uint32) []byte {
	v := d.tape.nodes[n]
	if v.kind == text {
		return d.tape.raw[v.start-1 : v.end+1]
	}
	return d.tape.raw[v.start:v.end]
}

var plainEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendUnescaped undoes the escapes of a string that parse has checked. Half
// of a surrogate pair is U+FFFD.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst, raw = append(dst, raw[:i]...), raw[i+1:]
		if raw[0] != 'u' {
			dst, raw = append(dst, plainEscapes[raw[0]]), raw[1:]
			continue
		}
		r, _ := hex4(raw[1:])
		raw = raw[5:]
		if utf16.IsSurrogate(r) {
			r, raw = secondHalf(r, raw)
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// secondHalf completes a surrogate pair with the escape that follows it.
func secondHalf(first rune, raw []byte) (rune, []byte) {
	if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
		second, _ := hex4(raw[2:])
		if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
			return r, raw[6:]
		}
	}
	return utf8.RuneError, raw
}
