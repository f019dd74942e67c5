// Package filter is the language that says which of a topic's messages an
// observer is called for: one JSON object, read over one document with the
// roots input, output, error, caller and metadata.
//
//	{"input.priority": {"$eq": "high"}, "input.items": {"$any": {"@.qty": {"$gt": 8}}}}
//
// A filter is compiled once and evaluated without decoding the document: a
// payload is indexed at most once, when the first filter looks at it, and its
// strings and numbers are compared where they are. docs/guides/filters.md is
// the language.
package filter
