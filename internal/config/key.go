package config

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is what a key takes.
type Kind int

// The kinds.
const (
	Text    Kind = iota
	Number       // a whole number from Least to Most
	Flag         // true or false
	Section      // Keys
	Named        // names of the user's choice, each with Keys or a Choice
	Choice       // a name, one of Choices, and config: the keys of that choice; and Keys
	List         // in order, each with Keys
)

// Key is a key of the configuration.
type Key struct {
	Name string
	Kind Kind
	Doc  string
	// Default is what holds where the key is not set; nil: nothing does.
	Default any
	// Required: it has to be set where what it is in is.
	Required bool
	// Least and Most bound a Number.
	Least, Most int64
	// Allowed are the values of a Text; none: any.
	Allowed []string
	// Check refuses a value, or a name of a Named, with what it has to be.
	Check func(text string) error
	// Warn says of a value that is accepted what is not as it seems, if anything.
	Warn func(value any) string
	// Keys are those of a Section, of each entry of a Named or a List, and those of a
	// Choice beside its name and config.
	Keys []Key
	// Choices are those of a Choice, or of each entry of a Named that is one, by
	// name. Aliases are other names of them.
	Choices map[string][]Key
	Aliases map[string]string
	// Always are entries of a Named that are there without being set.
	Always []string
	// Take takes the value of a key that belongs to the process which reads the
	// file: it is no part of the document. It is given a string, an int64 or a bool.
	Take func(value any) error
}

// Names of the keys of a Choice.
const (
	choiceName   = "name"
	choiceConfig = "config"
)

// named finds a key by its name.
func named(keys []Key, name string) *Key {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i]
		}
	}
	return nil
}

// namesOf are the keys' names, for people.
func namesOf(keys []Key) string {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].Name
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// entry is what each entry of a Named or a List is.
func (k *Key) entry() *Key {
	e := &Key{Kind: Section, Keys: k.Keys}
	if k.Choices != nil {
		e.Kind, e.Choices, e.Aliases = Choice, k.Choices, k.Aliases
	}
	return e
}

// beside are all keys of a Choice.
func (k *Key) beside() []Key {
	return append([]Key{{Name: choiceConfig}, {Name: choiceName}}, k.Keys...)
}

// choices are the names a Choice takes, aliases last.
func (k *Key) choices() []string {
	names := make([]string, 0, len(k.Choices)+len(k.Aliases))
	for name := range k.Choices {
		names = append(names, name)
	}
	slices.Sort(names)
	aliases := make([]string, 0, len(k.Aliases))
	for name := range k.Aliases {
		aliases = append(aliases, name)
	}
	slices.Sort(aliases)
	return append(names, aliases...)
}

// resolved is the choice that a name stands for; false if there is none.
func (k *Key) resolved(name string) (string, bool) {
	if alias, is := k.Aliases[name]; is {
		name = alias
	}
	_, known := k.Choices[name]
	return name, known
}

// takes is what the key takes, for people.
func (k *Key) takes() string {
	switch k.Kind {
	case Number:
		return fmt.Sprintf("a whole number from %d to %d", k.Least, k.Most)
	case Flag:
		return "true or false"
	case Section, Choice, Named:
		return "keys and values"
	case List:
		return "a list"
	case Text:
	}
	if len(k.Allowed) > 0 {
		return oneOf(k.Allowed)
	}
	return "text"
}

// oneOf is "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// join appends a key's name to the path of the one it is in.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
