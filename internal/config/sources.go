package config

import (
	"encoding/json"
	"os"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Sources are what a process was started with.
type Sources struct {
	// Seed is the file's, for a mesh that has no configuration yet; nil without a
	// file.
	Seed Document
	// Change is the environment's and the flags', which change the configuration
	// at each start.
	Change   Document
	Warnings []string // for people
}

// Read reads a file, unless its name is empty, the environment over it, and the
// flags over that. Keys of the process itself, further, are taken in that order.
func Read(path string, further []Key, flags Document) (*Sources, error) {
	s := &Sources{}
	if path != "" {
		file, err := ReadFile(path, further)
		if err != nil {
			return nil, err
		}
		s.Seed, s.Warnings = file.Document, file.Warnings
	}
	environment, err := ReadEnv(os.LookupEnv, further)
	s.Change = environment.Merge(flags)
	return s, err
}

// SettingsDocument is what a change of the settings sets.
func SettingsDocument(change protocol.SettingsChange) Document {
	data, err := json.Marshal(change)
	if err != nil { // nothing in it can fail
		panic(err)
	}
	set, err := ParseDocument(data)
	if err != nil {
		panic(err)
	}
	return set
}
