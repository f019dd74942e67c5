package filter

import "unicode/utf8"

// kind is what a JSON value is.
type kind uint8

const (
	null kind = iota
	boolFalse
	boolTrue
	number
	text
	array
	object
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one value of a document, or one key of an object.
type node struct {
	start, end uint32 // of its bytes; a string's without the quotes
	next       uint32 // the node after it and all that it contains; while it is open, what contains it
	kind       kind
	escaped    bool // a string with a backslash in it
}

// none is no node: an absent value, or what contains the outermost one.
const none = ^uint32(0)

// tape is a document's values in the order in which they are written; the
// children of an object are its keys and values in turn. It needs no more
// stack for a document that is nested deeper.
type tape struct {
	raw   []byte
	nodes []node
	at    int    // where in raw it is
	open  uint32 // the container that is not closed yet
}

// parse reads raw. It is false if that is not one JSON value in UTF-8.
func (t *tape) parse(raw []byte) bool {
	t.raw, t.nodes, t.at, t.open = raw, t.nodes[:0], 0, none
	if !utf8.Valid(raw) {
		return false
	}
	for {
		ended, ok := t.value()
		if !ok {
			return false
		}
		if !ended {
			continue
		}
		if more, ok := t.after(); !more || !ok {
			return ok && t.at == len(raw)
		}
	}
}

// value reads a scalar, or the opening of a container up to its first value;
// ended says that a whole value is behind it.
func (t *tape) value() (ended, ok bool) {
	t.space()
	switch c := t.peek(); c {
	case '{':
		return t.begin(object, '}')
	case '[':
		return t.begin(array, ']')
	case '"':
		return true, t.text()
	case 't':
		return true, t.word("true", boolTrue)
	case 'f':
		return true, t.word("false", boolFalse)
	case 'n':
		return true, t.word("null", null)
	default:
		return true, t.number()
	}
}

func (t *tape) begin(k kind, closing byte) (ended, ok bool) {
	t.push(node{start: uint32(t.at), next: t.open, kind: k})
	t.open = uint32(len(t.nodes) - 1)
	t.at++
	t.space()
	if t.peek() == closing {
		t.end()
		return true, true
	}
	return false, k == array || t.key()
}

// end closes the innermost container.
func (t *tape) end() {
	t.at++
	n := &t.nodes[t.open]
	t.open, n.next, n.end = n.next, uint32(len(t.nodes)), uint32(t.at)
}

// after reads what follows a value: the ends of containers, and a comma with
// the next key. more says that another value follows.
func (t *tape) after() (more, ok bool) {
	for {
		t.space()
		if t.open == none {
			return false, true
		}
		inObject := t.nodes[t.open].kind == object
		switch c := t.peek(); {
		case c == ',' && inObject:
			t.at++
			t.space()
			return true, t.key()
		case c == ',':
			t.at++
			return true, true
		case c == '}' && inObject, c == ']' && !inObject:
			t.end()
		default:
			return false, false
		}
	}
}

// key reads an object's key and its colon.
func (t *tape) key() bool {
	if t.peek() != '"' || !t.text() {
		return false
	}
	t.space()
	if t.peek() != ':' {
		return false
	}
	t.at++
	return true
}

func (t *tape) push(n node) { t.nodes = append(t.nodes, n) }

// peek is the byte at the place, 0 at the end.
func (t *tape) peek() byte {
	if t.at < len(t.raw) {
		return t.raw[t.at]
	}
	return 0
}

func (t *tape) space() {
	for t.at < len(t.raw) {
		switch t.raw[t.at] {
		case ' ', '\t', '\n', '\r':
			t.at++
		default:
			return
		}
	}
}

// scalar pushes what is between from and to.
func (t *tape) scalar(k kind, from, to int, escaped bool) bool {
	t.push(node{start: uint32(from), end: uint32(to), next: uint32(len(t.nodes) + 1), kind: k, escaped: escaped})
	return true
}

func (t *tape) word(w string, k kind) bool {
	from := t.at
	if len(t.raw)-from < len(w) || string(t.raw[from:from+len(w)]) != w {
		return false
	}
	t.at += len(w)
	return t.scalar(k, from, t.at, false)
}

// text reads a string; its escapes are checked here and undone when somebody
// wants it.
func (t *tape) text() bool {
	from, escaped := t.at+1, false
	for i := from; i < len(t.raw); i++ {
		switch c := t.raw[i]; {
		case c == '"':
			t.at = i + 1
			return t.scalar(text, from, i, escaped)
		case c < ' ':
			return false
		case c == '\\':
			escaped = true
			n := escapeLen(t.raw[i+1:])
			if n == 0 {
				return false
			}
			i += n
		}
	}
	return false
}

// escapeLen is the length of the escape after a backslash, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if _, ok := hex4(b[1:]); ok {
			return 5
		}
	}
	return 0
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		r <<= 4
		switch {
		case '0' <= c && c <= '9':
			r |= rune(c - '0')
		case 'a' <= c && c <= 'f':
			r |= rune(c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			r |= rune(c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (t *tape) number() bool {
	from := t.at
	if t.peek() == '-' {
		t.at++
	}
	if t.peek() == '0' {
		t.at++
	} else if !t.digits() {
		return false
	}
	if t.peek() == '.' {
		t.at++
		if !t.digits() {
			return false
		}
	}
	if c := t.peek(); c == 'e' || c == 'E' {
		t.at++
		if c := t.peek(); c == '+' || c == '-' {
			t.at++
		}
		if !t.digits() {
			return false
		}
	}
	return t.scalar(number, from, t.at, false)
}

// digits reads at least one.
func (t *tape) digits() bool {
	from := t.at
	for '0' <= t.peek() && t.peek() <= '9' {
		t.at++
	}
	return t.at > from
}
