package protocol_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// docs/errors.md and the code list the same codes and numbers, and each has a
// meaning and a cure.
func TestCodesAgreeWithTheirPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]int{}
	row := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (\\d+) \\|([^|]*)\\|([^|]*)\\|$")
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		status, err := strconv.Atoi(cells[2])
		if err != nil {
			t.Fatal(err)
		}
		if len(strings.TrimSpace(cells[3])) < 10 || len(strings.TrimSpace(cells[4])) < 10 {
			t.Errorf("%s has no meaning or no cure", cells[1])
		}
		documented[cells[1]] = status
	}
	coded := map[string]int{}
	for _, code := range protocol.Codes() {
		coded[string(code)] = code.Status()
	}
	if diff := cmp.Diff(documented, coded); diff != "" {
		t.Errorf("the page and the code differ (-page +code):\n%s", diff)
	}
}

func TestUnknownCodeIsAFault(t *testing.T) {
	if got := protocol.Code("OF_A_LATER_VERSION").Status(); got != 500 {
		t.Errorf("status %d", got)
	}
}

func TestErrorsMatchByCode(t *testing.T) {
	err := fmt.Errorf("publish: %w", protocol.Errorf(protocol.CodeQuotaExceeded, "queue %s is full", "q"))
	if !errors.Is(err, &protocol.Error{Code: protocol.CodeQuotaExceeded}) {
		t.Error("does not match its own code")
	}
	if !errors.Is(err, &protocol.Error{Code: protocol.CodeQuotaExceeded, Message: "queue q is full"}) {
		t.Error("does not match its own code and text")
	}
	for _, other := range []error{
		&protocol.Error{Code: protocol.CodeLimitExceeded}, &protocol.Error{Code: protocol.CodeQuotaExceeded, Message: "other"}, errors.New("queue q is full"),
	} {
		if errors.Is(err, other) {
			t.Errorf("matches %v", other)
		}
	}
	if code := protocol.CodeOf(err); code != protocol.CodeQuotaExceeded {
		t.Errorf("its code is %q", code)
	}
	if got := err.Error(); got != "publish: QUOTA_EXCEEDED: queue q is full" {
		t.Errorf("its text is %q", got)
	}
}

func TestErrorsWithoutACode(t *testing.T) {
	if protocol.AsError(nil) != nil || protocol.CodeOf(nil) != "" || protocol.CodeOf(errors.New("x")) != "" {
		t.Error("a code where there is none")
	}
	coded := protocol.Errorf(protocol.CodeConflict, "taken")
	for err, want := range map[error]protocol.Code{
		fmt.Errorf("read: %w", coded):                    protocol.CodeConflict,
		fmt.Errorf("read: %w", context.DeadlineExceeded): protocol.CodeTimeout,
		errors.New("disk"):                               protocol.CodeInternal,
	} {
		if got := protocol.AsError(err); got.Code != want || !strings.Contains(err.Error(), got.Message) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

// An error's body has our own fields and JetStream's error object.
func TestErrorBody(t *testing.T) {
	body := protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeReservedHeader, `header "CC" is reserved`))
	want := map[string]any{
		"code": "RESERVED_HEADER", "message": `header "CC" is reserved`,
		"error": map[string]any{"code": 400.0, "description": `RESERVED_HEADER: header "CC" is reserved`},
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, code := range protocol.Codes() {
		sent := protocol.Errorf(code, "why: %q\n日", "x")
		if diff := cmp.Diff(sent, protocol.ParseErrorBody(protocol.MarshalErrorBody(sent))); diff != "" {
			t.Errorf("%s: %s", code, diff)
		}
	}
}

func TestParseErrorBodyOfALaterVersion(t *testing.T) {
	body := `{"error":{"code":418,"err_code":99999,"description":"d","later":1},"code":"LATER","message":"m","cure":"c"}`
	if diff := cmp.Diff(&protocol.Error{Code: "LATER", Message: "m"}, protocol.ParseErrorBody([]byte(body))); diff != "" {
		t.Error(diff)
	}
}

func TestParseErrorBodyOfWhatIsNone(t *testing.T) {
	for _, body := range []string{
		"", "null", "1", `"x"`, "[]", "{}", "{", `{"code":"X","message":"m"}`, `{"error":{"code":500}}`, `{"error":null,"code":"X"}`,
		`{"error":"the last failure's text","code":"X","message":"m"}`, `{"stream":"WAYBILL_builtin","seq":1}`, `{"error":{},"code":1}`,
	} {
		if e := protocol.ParseErrorBody([]byte(body)); e != nil {
			t.Errorf("%s is taken for %v", body, e)
		}
	}
}

func FuzzParseErrorBody(f *testing.F) {
	f.Add([]byte(`{"error":{"code":400,"description":"d"},"code":"X","message":"m"}`))
	f.Add(protocol.MarshalErrorBody(protocol.Errorf(protocol.CodeInternal, "x")))
	f.Add([]byte(`{"error":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e := protocol.ParseErrorBody(body)
		if e == nil {
			return
		}
		if diff := cmp.Diff(e, protocol.ParseErrorBody(protocol.MarshalErrorBody(e))); e.Code == "" || diff != "" {
			t.Errorf("%q becomes %v, then %s", body, e, diff)
		}
	})
}
