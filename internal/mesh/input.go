package mesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Input reads the input of one of the mesh's own functions: one object, without
// fields that it does not know; none is an empty one. What is anything else is
// refused with INVALID_ARGS.
func Input(function string, input []byte, into any) error {
	if len(input) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return wrongInput(function, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s goes on behind its end: it is one JSON object", function)
	}
	return nil
}

func wrongInput(function string, err error) error {
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case unknown:
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s has no argument %.100s: leave it out, or see whether it is misspelt", function, field)
	case isType && wrong.Field == "":
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s is a JSON %s: it is an object", function, wrong.Value)
	case isType:
		name := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s of %s is a JSON %s: it is of the type %s", name, function, wrong.Value, wrong.Type)
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s cannot be read: %v", function, err)
	}
}
