package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Variable is the environment variable that sets a key: WAYBILL_ and its path.
func Variable(key string) string {
	return "WAYBILL_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// ReadEnv reads what the environment sets of the mesh's keys, and of further ones.
// INVALID_ARGS names the variable and what it may be.
func ReadEnv(lookup func(string) (string, bool), further []Key) (Document, error) {
	e := &environment{lookup: lookup, variables: map[string]string{}}
	given := e.section(append(Keys(), further...), "")
	c := &checker{take: true, set: true}
	set := Document(c.section(append(Keys(), further...), "", given))
	if e.err == nil && len(c.problems) > 0 {
		p := c.problems[0]
		e.err = protocol.Errorf(protocol.CodeInvalidArgs, "the variable %s, %s", e.variables[p.Key], p)
	}
	return set, e.err
}

type environment struct {
	lookup    func(string) (string, bool)
	variables map[string]string // by key
	err       error
}

func (e *environment) section(keys []Key, at string) map[string]any {
	given := map[string]any{}
	for i := range keys {
		if value := e.value(&keys[i], join(at, keys[i].Name)); value != nil {
			given[keys[i].Name] = value
		}
	}
	return given
}

func (e *environment) value(k *Key, at string) any {
	switch k.Kind {
	case Section:
		return orNil(e.section(k.Keys, at))
	case Choice:
		return orNil(e.section(k.choiceKeys(), at))
	case Named, List:
		return nil
	default:
		return e.scalar(k, at)
	}
}

// choiceKeys are the keys of a Choice, whatever is chosen.
func (k *Key) choiceKeys() []Key {
	var all []Key
	for _, name := range slices.Sorted(maps.Keys(k.Choices)) {
		for _, inner := range k.Choices[name] {
			if named(all, inner.Name) == nil {
				all = append(all, inner)
			}
		}
	}
	return []Key{{Name: choiceName}, {Name: choiceConfig, Kind: Section, Keys: all}}
}

func orNil(given map[string]any) any {
	if len(given) == 0 {
		return nil
	}
	return given
}

// scalar is the value of a variable; one of the wrong kind stays text, and is
// refused as that.
func (e *environment) scalar(k *Key, at string) any {
	name := Variable(at)
	text, isSet := e.lookup(name)
	if !isSet {
		return nil
	}
	e.variables[at] = name
	switch k.Kind {
	case Number:
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			return n
		}
	case Flag:
		b, err := strconv.ParseBool(text)
		if err == nil {
			return b
		}
	default:
		return text
	}
	if e.err == nil {
		e.err = protocol.Errorf(protocol.CodeInvalidArgs, "the variable %s is %.64q: it is %s", name, text, k.takes())
	}
	return nil
}

// Variables are the variables there are, each with the path of its key.
func Variables(further []Key) map[string]string {
	all := map[string]string{}
	note := func(name string) (string, bool) { all[name] = ""; return "", false }
	e := &environment{lookup: note, variables: map[string]string{}}
	e.section(append(Keys(), further...), "")
	return all
}
