package document_test

import (
	"testing"

	"github.com/waybill-mq/waybill/internal/document"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type thing struct {
	document.Head
	Name string `json:"name"`
}

func TestFieldsOfALaterVersionAreKept(t *testing.T) {
	var v thing
	if err := document.Unmarshal([]byte(`{"min_writer":1,"name":"a","colour":{"rgb":[1,2]}}`), &v); err != nil {
		t.Fatal(err)
	}
	v.Name = "b"
	got, err := document.Marshal(&v)
	if err != nil || string(got) != `{"colour":{"rgb":[1,2]},"min_writer":1,"name":"b"}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestARecordOfItsOwnVersionIsPlain(t *testing.T) {
	got, err := document.Marshal(&thing{Name: "a"})
	if err != nil || string(got) != `{"min_writer":1,"name":"a"}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestWhatMayNotBeWrittenIsRefused(t *testing.T) {
	for data, code := range map[string]protocol.Code{
		`{"min_writer":2,"name":"a"}`: protocol.CodeUnsupported,
		`{"min_writer":`:              protocol.CodeInternal,
	} {
		if err := document.Unmarshal([]byte(data), &thing{}); protocol.CodeOf(err) != code {
			t.Errorf("%s: got %v, want %s", data, err, code)
		}
	}
}
