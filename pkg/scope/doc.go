// Package scope keeps executions apart by name.
//
// Several executions of one pipeline run at the same time and use the same
// routes. A route of an execution is a queue of its own, /queue/<execution
// id>/<route>; a topic, /topic/<topic>, belongs to all of them. The package
// checks names, turns what users write into the one form that is stored, wraps
// a queue interface so that a program need not think of it (Scoped), and gives
// each broker names it can take (Strategy).
//
// Every refusal is an INVALID_NAME that says which rule was broken.
package scope
