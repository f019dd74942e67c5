package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// File is what was read.
type File struct {
	// Document is what it sets of the mesh's configuration.
	Document Document
	// Own are the keys in it that belong to the process.
	Own      []string
	Warnings []string // for people, with file, line and key
}

// ReadFile reads a YAML file with keys of the mesh and further ones, of the
// process that reads it. The keys may also be those of the only element of a
// list. INVALID_ARGS names file, line and key of every mistake, and what may be
// there.
func ReadFile(path string, further []Key) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the configuration cannot be read: %v", err)
	}
	return Parse(path, text, further)
}

// Parse reads what is in a file of that name.
func Parse(path string, text []byte, further []Key) (*File, error) {
	return ParseChange(path, text, further, nil)
}

// ParseChange is Parse of what is to be merged into a document: what it says is right
// if that is right then. What is wrong in the document already is no matter.
func ParseChange(path string, text []byte, further []Key, into Document) (*File, error) {
	r := &reader{path: path, lines: map[string]int{}}
	given, err := r.tree(text)
	if err != nil {
		return nil, err
	}
	c := &checker{take: true, set: true}
	keys := append(Keys(), further...)
	set := Document(c.section(keys, "", given))
	var before []Problem
	if into != nil && !hasNull(given) { // a key without a value is a mistake, and no removal
		c = &checker{take: true, set: true}
		c.section(keys, "", into.Merge(given))
		set, before = without(given, further), Check(into).Problems
	}
	if len(c.problems) == 0 {
		c.problems = Check(into.Merge(set)).Problems
	}
	c.problems = slices.DeleteFunc(c.problems, func(p Problem) bool { return slices.Contains(before, p) })
	return r.file(set, given, further, c.problems, Check(set).Warnings)
}

// ParseForm is Parse of some of a configuration's keys, for whoever does not know the
// others: what they say of each other is not looked at.
func ParseForm(path string, text []byte, further []Key) (*File, error) {
	r := &reader{path: path, lines: map[string]int{}}
	given, err := r.tree(text)
	if err != nil {
		return nil, err
	}
	c := &checker{take: true, set: true, part: true}
	set := c.section(append(Keys(), further...), "", given)
	return r.file(set, given, further, c.problems, c.warnings)
}

func hasNull(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasNull)
	case []any:
		return slices.ContainsFunc(v, hasNull)
	}
	return value == nil
}

// without is what is given but for those keys.
func without(given map[string]any, keys []Key) Document {
	d := Document(maps.Clone(given))
	for i := range keys {
		delete(d, keys[i].Name)
	}
	return d
}

// reader knows where keys are in a file.
type reader struct {
	path  string
	lines map[string]int // by path of the key
}

// file is what was read, or what is wrong with it.
func (r *reader) file(set Document, given map[string]any, further []Key, problems, warnings []Problem) (*File, error) {
	file := &File{Document: set}
	for i := range further {
		if _, isSet := given[further[i].Name]; isSet {
			file.Own = append(file.Own, further[i].Name)
		}
	}
	for _, w := range warnings {
		file.Warnings = append(file.Warnings, r.located(w))
	}
	if len(problems) == 0 {
		return file, nil
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = r.located(p)
	}
	return nil, protocol.Errorf(protocol.CodeInvalidArgs, "%s", strings.Join(texts, "\n"))
}

// tree is the file's tree of values; nothing for an empty file.
func (r *reader) tree(text []byte) (map[string]any, error) {
	document, err := r.document(text)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	if len(document.Content) == 0 {
		return given, nil
	}
	root := document.Content[0]
	if root.Kind == yaml.SequenceNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return given, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "%s, line %d: it takes keys and values, or a list of one element with them", r.path, root.Line)
	}
	if err := r.note("", root); err != nil {
		return nil, err
	}
	if err := root.Decode(&given); err != nil {
		return nil, r.broken(err)
	}
	tree, err := plainMap(given)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "%s: %v", r.path, err)
	}
	return tree, nil
}

// document is the only YAML document of a file, without content for an empty one.
func (r *reader) document(text []byte) (document yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return document, r.broken(err)
	}
	var another yaml.Node
	switch err := d.Decode(&another); {
	case err == nil:
		return document, protocol.Errorf(protocol.CodeInvalidArgs, "%s, line %d: another document begins here: a configuration is one", r.path, another.Line)
	case !errors.Is(err, io.EOF):
		return document, r.broken(err)
	default:
		return document, nil
	}
}

// note notes the lines of the keys in a mapping, and of the entries of a list.
func (r *reader) note(at string, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		for i, entry := range n.Content {
			key := join(at, strconv.Itoa(i))
			r.lines[key] = entry.Line
			if err := r.note(key, entry); err != nil {
				return err
			}
		}
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		key := join(at, name.Value)
		if tag := name.ShortTag(); name.Kind == yaml.ScalarNode && tag != "!!str" && tag != "!!merge" {
			return protocol.Errorf(protocol.CodeInvalidArgs, "%s, line %d, key %s: a key is text: put it in quotes", r.path, name.Line, key)
		}
		r.lines[key] = name.Line
		if err := r.note(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// located is a problem with its place in the file.
func (r *reader) located(p Problem) string {
	for at := p.Key; ; at = at[:strings.LastIndexByte(at, '.')] {
		if line := r.lines[at]; line > 0 {
			return fmt.Sprintf("%s, line %d, %s", r.path, line, p)
		}
		if !strings.Contains(at, ".") {
			return fmt.Sprintf("%s, %s", r.path, p)
		}
	}
}

// broken is an error of the YAML library as ours.
func (r *reader) broken(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if types, ok := errors.AsType[*yaml.TypeError](err); ok && len(types.Errors) > 0 {
		text = strings.Join(types.Errors, "; ")
	}
	return protocol.Errorf(protocol.CodeInvalidArgs, "%s: %s", r.path, text)
}
