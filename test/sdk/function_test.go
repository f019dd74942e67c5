package sdk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

func TestCallingAFunction(t *testing.T) {
	s := startStandIn(t)
	server, caller := s.connect(), s.connect()
	f, err := server.Handle(t.Context(), "default", "text::upper", func(ctx context.Context, in []byte) ([]byte, error) {
		switch string(in) {
		case "coded":
			return nil, protocol.Errorf(protocol.CodeNotFound, "no such text")
		case "plain":
			return nil, errors.New("no disk")
		case "panic":
			panic("boom")
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		case "large":
			return make([]byte, 9<<20), nil
		}
		return []byte(strings.ToUpper(string(in))), nil
	}, client.Concurrency(2))
	if err != nil {
		t.Fatal(err)
	}
	if h := receive(t, s.hellos); len(h.Functions) != 1 || h.Functions[0].ID != "text::upper" {
		t.Fatalf("declared %+v", h)
	}
	call := func(in string) (string, error) {
		out, err := caller.Call(t.Context(), "default", "text::upper", []byte(in))
		return string(out), err
	}
	if out, err := call("hé"); err != nil || out != "HÉ" {
		t.Fatalf("%q %v", out, err)
	}
	for in, want := range map[string]string{"coded": "NOT_FOUND: no such text", "plain": "FUNCTION_FAILED: no disk", "panic": "FUNCTION_FAILED: panic: boom"} {
		if _, err := call(in); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	_, err = call("large")
	wantCode(t, err, protocol.CodePayloadTooLarge)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = caller.Call(ctx, "default", "text::upper", []byte("slow"))
	wantCode(t, err, protocol.CodeTimeout)
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = call("x")
	wantCode(t, err, protocol.CodeFunctionNotFound)
	if h := receive(t, s.hellos); len(h.Functions) != 0 {
		t.Fatalf("declared %+v", h)
	}
}

func TestAForeignServicesErrorIsAFailedFunction(t *testing.T) {
	s := startStandIn(t)
	s.on(protocol.FunctionSubject("default", "f"), func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		answer.Header.Set(protocol.HeaderServiceError, "no disk")
		m.RespondMsg(answer)
	})
	s.flush()
	_, err := s.connect().Call(t.Context(), "default", "f", nil)
	wantCode(t, err, protocol.CodeFunctionFailed)
}

func TestBadFunctionNames(t *testing.T) {
	s := startStandIn(t)
	c := s.connect()
	for _, id := range []string{"", "*", "a b", "a..b"} {
		_, err := c.Call(t.Context(), "default", id, nil)
		wantCode(t, err, protocol.CodeInvalidName)
		_, err = c.Handle(t.Context(), "default", id, func(context.Context, []byte) ([]byte, error) { return nil, nil })
		wantCode(t, err, protocol.CodeInvalidName)
	}
	_, err := c.Call(t.Context(), "*", "f", nil)
	wantCode(t, err, protocol.CodeInvalidName)
}
