package filter

import (
	"fmt"
	"unicode/utf8"
)

// shownBytes is how much of a value a reason shows.
const shownBytes = 120

// Reason is why one clause of a filter matches a document, or does not.
type Reason struct {
	Clause  string   `json:"clause"` // as it is written: a path with one operator, or $and, $or, $not
	Matches bool     `json:"matches"`
	Why     string   `json:"why,omitempty"`     // what the document has there
	Reasons []Reason `json:"reasons,omitempty"` // of the clauses within
}

// Explain is Match clause by clause. All clauses together must match; each is
// evaluated, also after one that does not. The empty filter has none.
func (f *Filter) Explain(d *Document) []Reason {
	switch {
	case f.Everything():
		return nil
	case !d.IsJSON():
		return []Reason{{Clause: "the document", Why: "is not JSON, which only the empty filter matches"}}
	default:
		return f.root.explain(d, none)
	}
}

func (g group) explain(d *Document, element uint32) []Reason {
	rs := make([]Reason, 0, len(g))
	for _, c := range g {
		rs = append(rs, c.explain(d, element)...)
	}
	return rs
}

// explain has a reason for each operator.
func (p *path) explain(d *Document, element uint32) []Reason {
	n := p.find(d, element)
	rs := make([]Reason, 0, len(p.tests))
	for _, t := range p.tests {
		rs = append(rs, Reason{Clause: fmt.Sprintf("%s %s", p.name, t), Matches: t.passes(d, n), Why: t.why(d, n)})
	}
	return rs
}

func (a all) explain(d *Document, element uint32) []Reason {
	return []Reason{{Clause: "$and", Matches: a.holds(d, element), Reasons: each(a, d, element)}}
}

func (s some) explain(d *Document, element uint32) []Reason {
	return []Reason{{Clause: "$or", Matches: s.holds(d, element), Reasons: each(s, d, element)}}
}

func (n not) explain(d *Document, element uint32) []Reason {
	return []Reason{{Clause: "$not", Matches: n.holds(d, element), Reasons: n.group.explain(d, element)}}
}

// each explains the filters of $and and $or. One with several clauses, or
// none, is shown as a whole.
func each(groups []group, d *Document, element uint32) []Reason {
	var rs []Reason
	for i, g := range groups {
		inner := g.explain(d, element)
		if len(inner) != 1 {
			inner = []Reason{{Clause: fmt.Sprintf("[%d]", i), Matches: g.holds(d, element), Reasons: inner}}
		}
		rs = append(rs, inner...)
	}
	return rs
}

// why says what an operator has found.
func (written) why(d *Document, n uint32) string {
	if n == none {
		return "is absent"
	}
	return "is " + shorten(d.bytes(n))
}

// why says which element has passed.
func (t *anyElement) why(d *Document, n uint32) string {
	if n == none || d.tape.nodes[n].kind != array {
		return t.written.why(d, n)
	}
	elements := 0
	for e := n + 1; e < d.tape.nodes[n].next; e = d.tape.nodes[e].next {
		if t.matches(d, e) {
			return fmt.Sprintf("element %d is %s", elements, shorten(d.bytes(e)))
		}
		elements++
	}
	return fmt.Sprintf("none of %d elements does", elements)
}

// shorten cuts a value between two characters.
func shorten(b []byte) string {
	if len(b) <= shownBytes {
		return string(b)
	}
	cut := shownBytes
	for !utf8.RuneStart(b[cut]) {
		cut--
	}
	return string(b[:cut]) + "…"
}
