package filter

import "slices"

// literal is a JSON value of a filter.
type literal struct {
	kind     kind
	number   float64
	text     string
	elements []literal // of an array
	members  []member  // of an object, in the order of the alphabet, each key once
}

type member struct {
	key   string
	value literal
}

// value is a document's value that is compared with several literals: its
// text or number is read once.
type value struct {
	node   uint32
	kind   kind
	number float64
	text   []byte
}

func (d *Document) value(n uint32) value {
	v := &d.tape.nodes[n]
	switch v.kind {
	case number:
		return value{node: n, kind: v.kind, number: d.float(v)}
	case text:
		return value{node: n, kind: v.kind, text: d.text(v)}
	default:
		return value{node: n, kind: v.kind}
	}
}

// equal is deep equality: numbers as doubles, objects whatever their order,
// nothing equal to a value of another type.
func (d *Document) equal(v value, l *literal) bool {
	if v.kind != l.kind {
		return false
	}
	switch v.kind {
	case number:
		return v.number == l.number
	case text:
		return string(v.text) == l.text
	case array:
		return d.equalElements(v.node, l)
	case object:
		return d.equalMembers(v.node, l)
	default:
		return true
	}
}

func (d *Document) equalElements(n uint32, l *literal) bool {
	nodes, i := d.tape.nodes, 0
	for e := n + 1; e < nodes[n].next; e = nodes[e].next {
		if i == len(l.elements) || !d.equal(d.value(e), &l.elements[i]) {
			return false
		}
		i++
	}
	return i == len(l.elements)
}

// equalMembers looks at each key of the document once, however often it has
// it: the last counts.
func (d *Document) equalMembers(n uint32, l *literal) bool {
	nodes, values := d.tape.nodes, make([]uint32, len(l.members))
	for key := n + 1; key < nodes[n].next; key = nodes[key+1].next {
		i, known := l.find(d.text(&nodes[key]))
		if !known {
			return false
		}
		values[i] = key + 1
	}
	for i, v := range values {
		if v == 0 || !d.equal(d.value(v), &l.members[i].value) {
			return false
		}
	}
	return true
}

// find is where an object has a key.
func (l *literal) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(l.members, key, func(m member, key []byte) int { return -compare(key, m.key) })
}

// compare orders strings by code point, which is the order of UTF-8's bytes.
func compare(a []byte, b string) int {
	switch {
	case string(a) < b:
		return -1
	case string(a) > b:
		return 1
	default:
		return 0
	}
}
