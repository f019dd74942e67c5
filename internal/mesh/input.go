package mesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ReadInput reads the input of the function of that id, a JSON object without
// fields that into does not have; none is an empty one. INVALID_ARGS names what
// is wrong.
func ReadInput(id string, input []byte, into any) error {
	if len(input) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, end := d.Token(); errors.Is(end, io.EOF) {
			return nil
		}
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s is more than one JSON object", id)
	}
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case unknown:
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s has no argument %.100s: leave it out, or see whether it is misspelt", id, field)
	case isType && wrong.Field == "":
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s is a JSON %s: it is an object", id, wrong.Value)
	case isType:
		name := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
		return protocol.Errorf(protocol.CodeInvalidArgs, "%s of %s is a JSON %s: it is of the type %s", name, id, wrong.Value, wrong.Type)
	default:
		return protocol.Errorf(protocol.CodeInvalidArgs, "the input of %s cannot be read: %v", id, err)
	}
}
