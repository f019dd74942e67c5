package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Compile reads a filter. What it refuses is INVALID_FILTER; the message names
// the clause and says what may stand there.
func Compile(raw []byte) (*Filter, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, notAFilter(raw)
	}
	c := &compiler{}
	if !c.d.Roots(compact.Bytes()).IsJSON() {
		return nil, notAFilter(raw)
	}
	if compact.Len() > MaxBytes {
		return nil, protocol.Errorf(protocol.CodeInvalidFilter, "the filter has %d bytes without white space and may have %d: compare fewer or shorter values", compact.Len(), MaxBytes)
	}
	root, err := c.filter(place{}, 0, 1, false)
	if err != nil {
		return nil, err
	}
	return &Filter{root: root, raw: compact.Bytes()}, nil
}

// notAFilter says what is there instead of an object.
func notAFilter(raw []byte) error {
	var t tape
	if t.parse(raw) {
		return protocol.Errorf(protocol.CodeInvalidFilter, "a filter is an object of paths and operators, such as {\"input.priority\": {\"$eq\": \"high\"}}, not %s", t.nodes[0].kind)
	}
	return protocol.Errorf(protocol.CodeInvalidFilter, "the filter is not JSON in UTF-8: mend it around byte %d", t.at)
}

// compiler reads a filter from its own document.
type compiler struct {
	d         Document
	operators int
}

// place is where the compiler is, for messages.
type place []string

func (p place) in(format string, args ...any) place {
	return append(slices.Clip(p), fmt.Sprintf(format, args...))
}

func (p place) errorf(format string, args ...any) error {
	at := "the filter"
	if len(p) > 0 {
		at = strings.Join(p, " ")
	}
	return protocol.Errorf(protocol.CodeInvalidFilter, "%s: %s", at, fmt.Sprintf(format, args...))
}

// each calls f for the members of an object, and refuses one that is there
// twice: the first would silently not count.
func (c *compiler) each(at place, n uint32, f func(key string, v uint32) error) error {
	seen := map[string]bool{}
	nodes := c.d.tape.nodes
	for k := n + 1; k < nodes[n].next; k = nodes[k+1].next {
		key := string(c.d.text(&nodes[k]))
		if seen[key] {
			return at.errorf("%q stands there twice; say both in one, or in $and", key)
		}
		seen[key] = true
		if err := f(key, k+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) kind(n uint32) kind { return c.d.tape.nodes[n].kind }

// filter compiles a filter; depth is its level. Within $any (element) its root
// is @.
func (c *compiler) filter(at place, n uint32, depth int, element bool) (group, error) {
	if k := c.kind(n); k != object {
		return nil, at.errorf("takes a filter, which is an object, not %s", k)
	}
	if depth > MaxDepth {
		return nil, at.errorf("is nested deeper than %d levels ($or, $not and $any each add one)", MaxDepth)
	}
	var g group
	err := c.each(at, n, func(key string, v uint32) error {
		made, err := c.clause(at.in("%s", key), key, v, depth, element)
		g = append(g, made)
		return err
	})
	return g, err
}

func (c *compiler) clause(at place, key string, v uint32, depth int, element bool) (clause, error) {
	switch key {
	case "$and":
		groups, err := c.filters(at, v, depth, element)
		return all(groups), err
	case "$or":
		groups, err := c.filters(at, v, depth+1, element)
		return some(groups), err
	case "$not":
		g, err := c.filter(at, v, depth+1, element)
		return not{g}, err
	}
	if strings.HasPrefix(key, "$") {
		return nil, at.errorf("is not known here; a filter has paths, $and, $or and $not")
	}
	p, err := parsePath(at, key, element)
	if err != nil {
		return nil, err
	}
	if k := c.kind(v); k != object {
		return nil, at.errorf("takes an object of operators such as {\"$eq\": %s}, not %s", c.d.bytes(v), k)
	}
	p.tests, err = c.tests(at, v, depth)
	if err == nil && len(p.tests) == 0 {
		err = at.errorf("has no operator; to ask whether it is there write {\"$exists\": true}")
	}
	return p, err
}

// filters compiles the operand of $and and $or.
func (c *compiler) filters(at place, n uint32, depth int, element bool) ([]group, error) {
	if k := c.kind(n); k != array {
		return nil, at.errorf("takes an array of filters, not %s", k)
	}
	nodes := c.d.tape.nodes
	var groups []group
	for e := n + 1; e < nodes[n].next; e = nodes[e].next {
		g, err := c.filter(at.in("[%d]", len(groups)), e, depth, element)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return nil, at.errorf("takes at least one filter")
	}
	return groups, nil
}

// parsePath reads root(.segment)*, in which \. is a dot and \\ a backslash.
func parsePath(at place, name string, element bool) (*path, error) {
	parts, err := split(at, name)
	if err != nil {
		return nil, err
	}
	p := &path{name: name, root: parts[0]}
	switch {
	case element && p.root == "@":
		p.root = ""
	case element:
		return nil, at.errorf("a path within $any begins with @, which is the element")
	case !slices.Contains(roots, p.root):
		return nil, at.errorf("a path begins with one of %s", strings.Join(roots, ", "))
	}
	if len(parts)-1 > MaxSegments {
		return nil, at.errorf("has %d segments after its root and may have %d", len(parts)-1, MaxSegments)
	}
	for _, s := range parts[1:] {
		if s == "" {
			return nil, at.errorf("has an empty segment: a path is a root and names with one dot between them")
		}
		p.segments = append(p.segments, segment{name: s, index: index(s)})
	}
	return p, nil
}

// split takes a path apart at its dots.
func split(at place, name string) ([]string, error) {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '.':
			parts = append(parts, part.String())
			part.Reset()
		case '\\':
			i++
			if i == len(name) || name[i] != '.' && name[i] != '\\' {
				return nil, at.errorf(`a backslash in a path stands before a dot or another backslash; in JSON it is itself written \\`)
			}
			part.WriteByte(name[i])
		default:
			part.WriteByte(name[i])
		}
	}
	return append(parts, part.String()), nil
}

// index is the number that a canonical decimal writes, -1 for anything else.
func index(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || strconv.Itoa(n) != s {
		return -1
	}
	return n
}

// tests compiles an object of operators.
func (c *compiler) tests(at place, n uint32, depth int) ([]test, error) {
	var tests []test
	err := c.each(at, n, func(operator string, v uint32) error {
		compile, known := operators[operator]
		if !known {
			return at.in("%s", operator).errorf("is no operator; there are %s", strings.Join(slices.Sorted(maps.Keys(operators)), ", "))
		}
		c.operators++
		if c.operators > MaxOperators {
			return at.errorf("is the operator after the %dth, which is all that a filter may have; $in takes up to %d values", MaxOperators, MaxMembers)
		}
		w := written{operator: operator, operand: string(c.d.bytes(v))}
		t, err := compile(c, at.in("%s", operator), w, v, depth)
		tests = append(tests, t)
		return err
	})
	return tests, err
}

// operators compile the operators by name.
var operators map[string]func(*compiler, place, written, uint32, int) (test, error)

func init() { //nolint:gochecknoinits // $any compiles operators itself
	operators = map[string]func(*compiler, place, written, uint32, int) (test, error){
		"$eq":     (*compiler).equals,
		"$ne":     (*compiler).equals,
		"$in":     (*compiler).isIn,
		"$nin":    (*compiler).isIn,
		"$gt":     (*compiler).ordered,
		"$gte":    (*compiler).ordered,
		"$lt":     (*compiler).ordered,
		"$lte":    (*compiler).ordered,
		"$exists": (*compiler).exists,
		"$prefix": (*compiler).begins,
		"$any":    (*compiler).anyElement,
	}
}

func (c *compiler) equals(at place, w written, n uint32, _ int) (test, error) {
	l, err := c.literal(at, n, 0)
	return &equals{written: w, literal: l, negated: w.operator == "$ne"}, err
}

func (c *compiler) isIn(at place, w written, n uint32, _ int) (test, error) {
	if k := c.kind(n); k != array {
		return nil, at.errorf("takes an array of values, not %s", k)
	}
	l, err := c.literal(at, n, -1)
	if err == nil && len(l.elements) > MaxMembers {
		err = at.errorf("has %d values and may have %d; put the rest into another in $or ($nin: in $and)", len(l.elements), MaxMembers)
	}
	return &isIn{written: w, literals: l.elements, negated: w.operator == "$nin"}, err
}

func (c *compiler) ordered(at place, w written, n uint32, _ int) (test, error) {
	if k := c.kind(n); k != number && k != text {
		return nil, at.errorf("takes a number or a string, not %s", k)
	}
	l, err := c.literal(at, n, 0)
	return &ordered{
		written: w, literal: l,
		less: w.operator == "$lt" || w.operator == "$lte",
		eq:   w.operator == "$lte" || w.operator == "$gte",
		more: w.operator == "$gt" || w.operator == "$gte",
	}, err
}

func (c *compiler) exists(at place, w written, n uint32, _ int) (test, error) {
	k := c.kind(n)
	if k != boolTrue && k != boolFalse {
		return nil, at.errorf("takes true or false, not %s", k)
	}
	return &exists{written: w, wanted: k == boolTrue}, nil
}

func (c *compiler) begins(at place, w written, n uint32, _ int) (test, error) {
	if k := c.kind(n); k != text {
		return nil, at.errorf("takes a string, not %s", k)
	}
	l, err := c.literal(at, n, 0)
	return &begins{written: w, prefix: l.text}, err
}

// anyElement takes operators for the element, or a filter about @.
func (c *compiler) anyElement(at place, w written, n uint32, depth int) (test, error) {
	if k := c.kind(n); k != object {
		return nil, at.errorf("takes an object of operators, or a filter about @, not %s", k)
	}
	depth++
	if depth > MaxDepth {
		return nil, at.errorf("is nested deeper than %d levels ($or, $not and $any each add one)", MaxDepth)
	}
	t := &anyElement{written: w}
	var err error
	if c.isOperators(n) {
		t.tests, err = c.tests(at, n, depth)
	} else {
		t.group, err = c.filter(at, n, depth, true)
	}
	return t, err
}

// isOperators says whether an object is one of operators, as its first member
// has it.
func (c *compiler) isOperators(n uint32) bool {
	nodes := c.d.tape.nodes
	if nodes[n].next == n+1 {
		return true
	}
	first := string(c.d.text(&nodes[n+1]))
	return strings.HasPrefix(first, "$") && first != "$and" && first != "$or" && first != "$not"
}

// literal compiles a value that is compared; depth is how many containers it
// is in.
func (c *compiler) literal(at place, n uint32, depth int) (literal, error) {
	v := &c.d.tape.nodes[n]
	l := literal{kind: v.kind}
	if (v.kind == array || v.kind == object) && depth >= MaxLiteralDepth {
		return l, at.errorf("has a value nested deeper than %d levels", MaxLiteralDepth)
	}
	var err error
	switch v.kind {
	case number:
		l.number, err = c.number(at, n)
	case text:
		l.text = string(c.d.text(v))
	case array:
		l.elements, err = c.elements(at, n, depth)
	case object:
		l.members, err = c.members(at, n, depth)
	case null, boolFalse, boolTrue:
	}
	return l, err
}

// number is a literal's number.
func (c *compiler) number(at place, n uint32) (float64, error) {
	written := string(c.d.bytes(n))
	f, err := strconv.ParseFloat(written, 64)
	if err != nil || math.Abs(f) > MaxNumber || math.Abs(f) == MaxNumber && isAbove(written) {
		return 0, at.errorf("%s is beyond ±2^53, up to which doubles are exact: compare such values as strings", written)
	}
	return f, nil
}

// isAbove says whether a number that as a double is the largest or smallest
// allowed one was rounded to it from beyond.
func isAbove(written string) bool {
	exact, ok := new(big.Float).SetPrec(4 * MaxBytes).SetString(written)
	return !ok || exact.Abs(exact).Cmp(big.NewFloat(MaxNumber)) > 0
}

func (c *compiler) elements(at place, n uint32, depth int) ([]literal, error) {
	nodes := c.d.tape.nodes
	var elements []literal
	for e := n + 1; e < nodes[n].next; e = nodes[e].next {
		l, err := c.literal(at, e, depth+1)
		if err != nil {
			return nil, err
		}
		elements = append(elements, l)
	}
	return elements, nil
}

func (c *compiler) members(at place, n uint32, depth int) ([]member, error) {
	var members []member
	err := c.each(at, n, func(key string, v uint32) error {
		l, err := c.literal(at, v, depth+1)
		members = append(members, member{key: key, value: l})
		return err
	})
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return members, err
}
