package filter

import "encoding/json"

// The limits of a filter. Or, Not and Any each begin a deeper level; And does
// not.
const (
	MaxDepth        = 8       // levels, the outermost being the first
	MaxOperators    = 64      // under all paths together
	MaxSegments     = 16      // of a path after its root
	MaxBytes        = 8192    // without insignificant white space
	MaxMembers      = 256     // of $in and $nin
	MaxNumber       = 1 << 53 // of a literal, whatever its sign
	MaxLiteralDepth = 32      // containers within each other
)

// Filter is a compiled filter. The zero value matches everything. It may be
// used by several goroutines, each with its own document.
type Filter struct {
	root group
	raw  json.RawMessage
}

// group is what {…} says: all of its clauses hold.
type group []clause

// clause is one member of a filter: a path with its tests, or $and, $or, $not.
type clause interface {
	// holds evaluates the clause; element is what @ stands for.
	holds(d *Document, element uint32) bool
	// explain is holds with the reasons.
	explain(d *Document, element uint32) []Reason
}

// Everything says that there is nothing in the filter that could fail; it
// then matches what is no JSON too, and the document need not be read.
func (f *Filter) Everything() bool { return f == nil || len(f.root) == 0 }

// Match evaluates the filter. It never fails: what cannot be compared does not
// match, and nothing but the empty filter matches a document that is not JSON.
func (f *Filter) Match(d *Document) bool {
	return f.Everything() || d.IsJSON() && f.root.holds(d, none)
}

// MarshalJSON is the filter as it was compiled, without white space.
func (f *Filter) MarshalJSON() ([]byte, error) {
	if f == nil || f.raw == nil {
		return []byte("{}"), nil
	}
	return f.raw, nil
}

// String is its JSON.
func (f *Filter) String() string {
	b, _ := f.MarshalJSON()
	return string(b)
}

func (g group) holds(d *Document, element uint32) bool {
	for _, c := range g {
		if !c.holds(d, element) {
			return false
		}
	}
	return true
}

// path is a clause about one value.
type path struct {
	name     string // as it was written
	root     string // "" for @
	segments []segment
	tests    []test
}

// segment is a member's name and, if it is a canonical decimal, an index.
type segment struct {
	name  string
	index int // -1 if it is none
}

func (p *path) find(d *Document, element uint32) uint32 {
	from := element
	if p.root != "" {
		from = d.root(p.root)
	}
	return d.at(from, p.segments)
}

func (p *path) holds(d *Document, element uint32) bool {
	n := p.find(d, element)
	for _, t := range p.tests {
		if !t.passes(d, n) {
			return false
		}
	}
	return true
}

// all is $and.
type all []group

func (a all) holds(d *Document, element uint32) bool {
	for _, g := range a {
		if !g.holds(d, element) {
			return false
		}
	}
	return true
}

// some is $or.
type some []group

func (s some) holds(d *Document, element uint32) bool {
	for _, g := range s {
		if g.holds(d, element) {
			return true
		}
	}
	return false
}

// not is $not.
type not struct{ group }

func (n not) holds(d *Document, element uint32) bool { return !n.group.holds(d, element) }
