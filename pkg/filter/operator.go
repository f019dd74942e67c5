package filter

import "strings"

// test is an operator with its operand, under a path.
type test interface {
	// passes evaluates it on a value, none if it is absent.
	passes(d *Document, n uint32) bool
	// why says what it has found there.
	why(d *Document, n uint32) string
	// String is the test as it is written.
	String() string
}

// equals is $eq, and $ne when it is negated.
type equals struct {
	written
	literal literal
	negated bool
}

func (t *equals) passes(d *Document, n uint32) bool {
	is := n != none && d.equal(d.value(n), &t.literal)
	return is != t.negated
}

// isIn is $in, and $nin when it is negated.
type isIn struct {
	written
	literals []literal
	negated  bool
}

func (t *isIn) passes(d *Document, n uint32) bool {
	is := n != none && t.contains(d, d.value(n))
	return is != t.negated
}

func (t *isIn) contains(d *Document, v value) bool {
	for i := range t.literals {
		if d.equal(v, &t.literals[i]) {
			return true
		}
	}
	return false
}

// ordered is $gt, $gte, $lt and $lte: what the comparison with the literal may
// come to.
type ordered struct {
	written
	literal        literal
	less, eq, more bool
}

func (t *ordered) passes(d *Document, n uint32) bool {
	if n == none || d.tape.nodes[n].kind != t.literal.kind {
		return false
	}
	order := 0
	switch v := d.value(n); {
	case v.kind == text:
		order = compare(v.text, t.literal.text)
	case v.number < t.literal.number:
		order = -1
	case v.number > t.literal.number:
		order = 1
	}
	return order < 0 && t.less || order == 0 && t.eq || order > 0 && t.more
}

// exists is $exists.
type exists struct {
	written
	wanted bool
}

func (t *exists) passes(_ *Document, n uint32) bool { return (n != none) == t.wanted }

// begins is $prefix.
type begins struct {
	written
	prefix string
}

func (t *begins) passes(d *Document, n uint32) bool {
	if n == none || d.tape.nodes[n].kind != text {
		return false
	}
	s := d.text(&d.tape.nodes[n])
	return len(s) >= len(t.prefix) && string(s[:len(t.prefix)]) == t.prefix
}

// anyElement is $any: an element passes all tests, and all of the group holds
// for it as @.
type anyElement struct {
	written
	tests []test
	group group
}

func (t *anyElement) passes(d *Document, n uint32) bool {
	if n == none || d.tape.nodes[n].kind != array {
		return false
	}
	for e := n + 1; e < d.tape.nodes[n].next; e = d.tape.nodes[e].next {
		if t.matches(d, e) {
			return true
		}
	}
	return false
}

func (t *anyElement) matches(d *Document, e uint32) bool {
	for _, sub := range t.tests {
		if !sub.passes(d, e) {
			return false
		}
	}
	return t.group.holds(d, e)
}

// written is an operator as it was written.
type written struct{ operator, operand string }

func (w written) String() string { return strings.TrimSpace(w.operator + " " + w.operand) }
