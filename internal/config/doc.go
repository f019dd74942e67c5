// Package config is the configuration of a mesh: its keys with their defaults
// and bounds, and the files, variables and documents that set them.
//
// A Document is what somebody has set, a tree of the values of JSON. Check says
// what is wrong with it and what holds with the defaults. The keys are one
// table, from which files are read, variables named and the JSON schema made,
// so that these cannot disagree.
package config
