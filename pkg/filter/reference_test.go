package filter_test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// The language once more, on decoded values, as slowly and as plainly as it
// can be said. Filters must be ones that Compile takes.

func referenceMatch(filter, document []byte) bool {
	var f map[string]any
	if json.Unmarshal(filter, &f) != nil || len(f) == 0 {
		return true
	}
	d, ok := decode(document).(map[string]any)
	return ok && referenceGroup(f, d)
}

// absent is what is not there, which null is not.
type absent struct{}

// decode is a document with all numbers as doubles; nil if it is not JSON.
func decode(raw []byte) any {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if !json.Valid(raw) || d.Decode(&v) != nil {
		return nil
	}
	return doubles(v)
}

func doubles(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := strconv.ParseFloat(string(v), 64)
		return f
	case []any:
		for i := range v {
			v[i] = doubles(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = doubles(v[k])
		}
	}
	return v
}

func referenceGroup(f, document map[string]any) bool {
	for key, operand := range f {
		if !referenceClause(key, operand, document) {
			return false
		}
	}
	return true
}

func referenceClause(key string, operand any, document map[string]any) bool {
	switch key {
	case "$not":
		return !referenceGroup(operand.(map[string]any), document)
	case "$and", "$or":
		for _, f := range operand.([]any) {
			if referenceGroup(f.(map[string]any), document) == (key == "$or") {
				return key == "$or"
			}
		}
		return key == "$and"
	}
	return referenceTests(operand.(map[string]any), follow(document, key))
}

func follow(document map[string]any, path string) any {
	path = strings.NewReplacer(`\\`, "\x01", `\.`, "\x02").Replace(path)
	var v any = document
	for s := range strings.SplitSeq(path, ".") {
		s = strings.NewReplacer("\x01", `\`, "\x02", ".").Replace(s)
		switch at := v.(type) {
		case map[string]any:
			member, ok := at[s]
			if !ok {
				return absent{}
			}
			v = member
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || strconv.Itoa(i) != s || i < 0 || i >= len(at) {
				return absent{}
			}
			v = at[i]
		default:
			return absent{}
		}
	}
	return v
}

func referenceTests(tests map[string]any, v any) bool {
	for operator, operand := range tests {
		if !referenceTest(operator, operand, v) {
			return false
		}
	}
	return true
}

func referenceTest(operator string, operand, v any) bool {
	switch operator {
	case "$eq":
		return reflect.DeepEqual(operand, v)
	case "$ne":
		return !reflect.DeepEqual(operand, v)
	case "$in", "$nin":
		for _, o := range operand.([]any) {
			if reflect.DeepEqual(o, v) {
				return operator == "$in"
			}
		}
		return operator == "$nin"
	case "$exists":
		_, gone := v.(absent)
		return gone != operand.(bool)
	case "$prefix":
		s, ok := v.(string)
		return ok && strings.HasPrefix(s, operand.(string))
	case "$any":
		return referenceAny(operand.(map[string]any), v)
	default:
		return referenceOrder(operator, operand, v)
	}
}

func referenceOrder(operator string, operand, v any) bool {
	var order int
	switch o := operand.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			return false
		}
		order = strings.Compare(s, o)
	case float64:
		n, ok := v.(float64)
		if !ok {
			return false
		}
		order = map[bool]int{n < o: -1, n > o: 1}[true]
	}
	return map[string]bool{"$gt": order > 0, "$gte": order >= 0, "$lt": order < 0, "$lte": order <= 0}[operator]
}

func referenceAny(operand map[string]any, v any) bool {
	elements, _ := v.([]any)
	for _, e := range elements {
		if isFilter(operand) && referenceGroup(operand, map[string]any{"@": e}) || !isFilter(operand) && referenceTests(operand, e) {
			return true
		}
	}
	return false
}

func isFilter(operand map[string]any) bool {
	for key := range operand {
		return !strings.HasPrefix(key, "$") || key == "$and" || key == "$or" || key == "$not"
	}
	return false
}
