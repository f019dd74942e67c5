package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Problem is what is wrong with a configuration, or, of a warning, what is not
// as it seems.
type Problem struct {
	Key  string // its path, such as queue_configs.mail.concurrency
	Text string
	// Unknown: this version does not know the key.
	Unknown bool
	// Unsupported: it is what a broker cannot do.
	Unsupported bool
}

func (p Problem) String() string { return "key " + cmp.Or(p.Key, "(all)") + ": " + p.Text }

// Result is what Check found.
type Result struct {
	// Config is what holds, with the defaults. It is meaningless with Problems
	// other than unknown keys.
	Config   protocol.Config
	Problems []Problem
	Warnings []Problem
}

// Err is INVALID_ARGS naming every problem that is not among those known before, or
// UNSUPPORTED if brokers cannot do what each is about; nil if there is none.
func (r *Result) Err(before ...Problem) error {
	var texts []string
	code := protocol.CodeUnsupported
	for _, p := range r.Problems {
		if slices.Contains(before, p) {
			continue
		}
		texts = append(texts, p.String())
		if !p.Unsupported {
			code = protocol.CodeInvalidArgs
		}
	}
	if texts == nil {
		return nil
	}
	return protocol.Errorf(code, "the configuration cannot be: %s", strings.Join(texts, "; "))
}

// Unknown are the problems that are keys of another version.
func (r *Result) Unknown() []Problem {
	return slices.DeleteFunc(slices.Clone(r.Problems), func(p Problem) bool { return !p.Unknown })
}

// WarningTexts are the warnings for people.
func (r *Result) WarningTexts() []string {
	texts := make([]string, len(r.Warnings))
	for i, w := range r.Warnings {
		texts[i] = w.String()
	}
	return texts
}

// Check looks at a document and completes it with the defaults.
func Check(d Document) *Result {
	c := &checker{}
	whole := c.section(Keys(), "", map[string]any(d))
	r := &Result{Problems: c.problems, Warnings: c.warnings}
	data, err := json.Marshal(whole)
	if err == nil {
		err = json.Unmarshal(data, &r.Config)
	}
	if err != nil && len(r.Problems) == 0 {
		r.Problems = append(r.Problems, Problem{Text: err.Error()})
	}
	r.together()
	return r
}

// together looks at what several keys say between them.
func (r *Result) together() {
	if r.Config.RunJobsIn == RunInWorker && r.Config.Adapter.Name != AdapterRabbitMQ {
		r.Problems = append(r.Problems, Problem{Key: "run_jobs_in", Text: fmt.Sprintf(
			"%s is for the adapter %s, which lets who takes a job give it back: the adapter is %s, so it is %s", RunInWorker, AdapterRabbitMQ, r.Config.Adapter.Name, RunInEnqueuer)})
	}
	r.checkBrokers()
	r.checkQueues()
	for _, name := range slices.Sorted(maps.Keys(r.Config.QueueConfigs)) {
		q, at := r.Config.QueueConfigs[name], join("queue_configs", name)
		if err := q.Validate(); err != nil && !r.refused(at) {
			r.Problems = append(r.Problems, Problem{Key: at, Text: textOf(err)})
		}
		for _, text := range q.Warnings() {
			r.Warnings = append(r.Warnings, Problem{Key: at, Text: text})
		}
	}
}

// refused says whether there is a problem with a key in at.
func (r *Result) refused(at string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.HasPrefix(p.Key, at+".") })
}

// checker walks a document along the keys.
type checker struct {
	problems, warnings []Problem
	// take has Key.Take called for the keys that belong to the process, which are
	// left out of what section returns.
	take bool
	// set keeps what was set alone, without the defaults.
	set bool
	// part: other keys may be elsewhere, what is chosen by a Choice too.
	part bool
}

func (c *checker) refusef(at, format string, args ...any) {
	c.problems = append(c.problems, Problem{Key: at, Text: fmt.Sprintf(format, args...)})
}

// section checks a section and completes it.
func (c *checker) section(keys []Key, at string, given map[string]any) map[string]any {
	whole := c.known(keys, at, given)
	c.unknown(keys, at, given)
	return whole
}

// known completes the keys that are known.
func (c *checker) known(keys []Key, at string, given map[string]any) map[string]any {
	whole := make(map[string]any, len(keys))
	for i := range keys {
		k := &keys[i]
		value, isSet := given[k.Name]
		if !isSet && k.Required {
			c.refusef(join(at, k.Name), "it is missing: %s", k.Doc)
			continue
		}
		if !isSet && (c.set || k.Take != nil) {
			continue
		}
		value = c.value(k, join(at, k.Name), value, isSet)
		if inner, isMap := value.(map[string]any); isMap && len(inner) == 0 && c.set {
			continue // nothing in it is set
		}
		if value != nil {
			whole[k.Name] = value
		}
	}
	return whole
}

// unknown refuses the others.
func (c *checker) unknown(keys []Key, at string, given map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if named(keys, name) == nil {
			c.problems = append(c.problems, Problem{Key: join(at, name), Unknown: true, Text: "it is not known here; known are " + namesOf(keys)})
		}
	}
}

// value checks and completes the value of one key; nil if nothing holds.
func (c *checker) value(k *Key, at string, value any, isSet bool) any {
	switch k.Kind {
	case Section, Named, Choice:
		given, isMap := value.(map[string]any)
		if value != nil && !isMap {
			c.refusef(at, "it takes %s", k.takes())
			return nil
		}
		return c.within(k, at, given)
	case List:
		given, isList := value.([]any)
		if value != nil && !isList {
			c.refusef(at, "it takes %s", k.takes())
			return nil
		}
		return c.list(k, at, given)
	default:
		if !isSet {
			return k.Default
		}
		return c.scalar(k, at, value)
	}
}

func (c *checker) within(k *Key, at string, given map[string]any) any {
	if k.Warn != nil && given != nil {
		if text := k.Warn(given); text != "" {
			c.warnings = append(c.warnings, Problem{Key: at, Text: text})
		}
	}
	switch k.Kind {
	case Named:
		return c.entries(k, at, given)
	case Choice:
		return c.choice(k, at, given)
	default:
		return c.section(k.Keys, at, given)
	}
}

// entries checks the entries of a Named.
func (c *checker) entries(k *Key, at string, given map[string]any) any {
	if given == nil && k.Always == nil {
		return nil
	}
	whole := make(map[string]any, len(given)+len(k.Always))
	entry := k.entry()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := k.Check(name); err != nil {
			c.refusef(join(at, name), "%s", textOf(err))
			continue
		}
		if value := c.value(entry, join(at, name), given[name], true); value != nil {
			whole[name] = value
		}
	}
	for _, name := range k.Always {
		if whole[name] == nil && !c.set {
			whole[name] = c.section(k.Keys, join(at, name), nil)
		}
	}
	return whole
}

// list checks the entries of a List; nil if there is none.
func (c *checker) list(k *Key, at string, given []any) any {
	if given == nil {
		return nil
	}
	whole := make([]any, 0, len(given))
	for i, item := range given {
		if value := c.value(k.entry(), join(at, strconv.Itoa(i)), item, true); value != nil {
			whole = append(whole, value)
		}
	}
	return whole
}

// choice checks a name and the keys that go with it.
func (c *checker) choice(k *Key, at string, given map[string]any) any {
	if given[choiceName] == nil && given != nil && c.part {
		return c.chosenElsewhere(k, at, given)
	}
	whole := make(map[string]any, len(given))
	name, isText := k.Default, true
	if value, isSet := given[choiceName]; isSet {
		name, isText = value.(string)
	}
	text, _ := name.(string)
	resolved, known := k.resolved(text)
	if !isText || !known {
		c.refusef(join(at, choiceName), "it is %s: it is %s", shown(given[choiceName]), oneOf(k.choices()))
		return nil
	}
	if !c.set {
		whole[choiceName] = resolved
	} else if isSet := given[choiceName] != nil; isSet {
		whole[choiceName] = text
	}
	keys := Key{Kind: Section, Keys: k.Choices[resolved]}
	if value, isSet := given[choiceConfig]; isSet || !c.set {
		whole[choiceConfig] = c.value(&keys, join(at, choiceConfig), value, isSet)
	}
	maps.Copy(whole, c.known(k.Keys, at, given))
	c.unknown(k.beside(), at, given)
	return whole
}

// chosenElsewhere checks the keys that go with a name by that which they fit best.
func (c *checker) chosenElsewhere(k *Key, at string, given map[string]any) any {
	var best *checker
	var whole any
	for _, name := range slices.Sorted(maps.Keys(k.Choices)) {
		named := maps.Clone(given)
		named[choiceName] = name
		one := &checker{set: c.set, part: true}
		value := one.choice(k, at, named)
		if best == nil || one.misfit() < best.misfit() {
			best, whole = one, value
		}
	}
	c.problems = append(c.problems, best.problems...)
	if of, isMap := whole.(map[string]any); isMap {
		delete(of, choiceName)
	}
	return whole
}

// misfit says how badly keys fit; one that is not known counts above all.
func (c *checker) misfit() int {
	n := len(c.problems)
	for _, p := range c.problems {
		if p.Unknown {
			n += 1000
		}
	}
	return n
}

// scalar checks one value.
func (c *checker) scalar(k *Key, at string, value any) any {
	if err := k.checkScalar(value); err != nil {
		c.refusef(at, "%s", textOf(err))
		return nil
	}
	if k.Warn != nil {
		if text := k.Warn(value); text != "" {
			c.warnings = append(c.warnings, Problem{Key: at, Text: text})
		}
	}
	if k.Take == nil {
		return value
	}
	if c.take {
		if err := k.Take(value); err != nil {
			c.refusef(at, "%s", textOf(err))
		}
	}
	return nil
}

func (k *Key) checkScalar(value any) error {
	if value == nil {
		return errors.New("it has no value: leave the key out for the default")
	}
	switch k.Kind {
	case Number:
		if n, is := value.(int64); !is || n < k.Least || n > k.Most {
			return fmt.Errorf("it is %s: it is %s", shown(value), k.takes())
		}
	case Flag:
		if _, is := value.(bool); !is {
			return fmt.Errorf("it is %s: it is %s", shown(value), k.takes())
		}
	default:
		return k.checkText(value)
	}
	return nil
}

func (k *Key) checkText(value any) error {
	text, is := value.(string)
	switch {
	case !is:
		return fmt.Errorf("it is %s: it takes %s; put text in quotes", shown(value), k.takes())
	case len(k.Allowed) > 0 && !slices.Contains(k.Allowed, text):
		return fmt.Errorf("it is %s: it is %s", shown(value), k.takes())
	case k.Check != nil:
		return k.Check(text)
	}
	return nil
}

// shown is a value for people, not all of a long one.
func shown(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%.64v", value)
	}
	return fmt.Sprintf("%.64s", data)
}

// textOf is an error's text without a code: the whole gets one.
func textOf(err error) string {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
