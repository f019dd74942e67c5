//go:build !no_artemis

package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3/frame"
	"github.com/nats-io/nuid"
)

// manageAddress is where the broker takes requests about itself.
const manageAddress = "activemq.management"

// manageWait bounds an answer.
const manageWait = 10 * time.Second

// onBroker is the resource that is the broker itself.
const onBroker = "broker"

// What is asked about a queue.
const (
	messageCount   = "messageCount"
	scheduledCount = "scheduledCount"
	itsAddress     = "address"
)

func onQueue(name string) string  { return "queue." + name }
func onDivert(name string) string { return "divert." + name }

// desk is where the broker is asked about itself, many things at once.
type desk struct {
	link *link

	mu    sync.Mutex
	reply string // the queue of the answers
	calls map[string]chan<- answer
	last  uint64
}

// request is an operation of a resource, or reads an attribute of it.
type request struct {
	resource  string
	operation string
	arguments []any
	attribute string
}

// answer is a value, or why there is none.
type answer struct {
	value json.RawMessage
	err   error
}

func newDesk(b *Broker) *desk {
	d := &desk{link: newLink(b, "manage"), calls: make(map[string]chan<- answer)}
	d.link.prepare = d.open
	return d
}

// open makes a queue for the answers that come over a connection, which goes with
// it.
func (d *desk) open(ctx context.Context, conn *connection) error {
	reply := "waybill.reply." + nuid.Next()
	create, err := operation(request{resource: onBroker, operation: "createQueue", arguments: []any{passing(reply, anycast)}})
	if err != nil {
		return err
	}
	if err := conn.do(ctx, create); err != nil {
		return err
	}
	id := conn.number()
	conn.take(id, d.answered)
	if err := conn.do(ctx, frame.New(frame.SUBSCRIBE, frame.Id, id, frame.Destination, reply, frame.Ack, "auto", "subscription-type", anycast)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reply = reply
	return nil
}

// operation is the frame of a request whose answer nobody waits for.
func operation(r request) (*frame.Frame, error) {
	f := frame.New(frame.SEND, frame.Destination, manageAddress, "_AMQ_ResourceName", r.resource)
	if r.attribute != "" {
		f.Header.Add("_AMQ_Attribute", r.attribute)
		return f, nil
	}
	f.Header.Add("_AMQ_OperationName", r.operation)
	arguments := r.arguments
	if arguments == nil {
		arguments = []any{}
	}
	body, err := json.Marshal(arguments)
	f.Body = body
	return f, err
}

// answered takes an answer.
func (d *desk) answered(f *frame.Frame) {
	id := f.Header.Get("correlation-id")
	d.mu.Lock()
	call := d.calls[id]
	delete(d.calls, id)
	d.mu.Unlock()
	if call != nil {
		call <- read(f)
	}
}

func read(f *frame.Frame) answer {
	var values []json.RawMessage
	if len(f.Body) > 0 {
		if err := json.Unmarshal(f.Body, &values); err != nil {
			return answer{err: fmt.Errorf("the broker answers no JSON: %w", err)}
		}
	}
	var value json.RawMessage
	if len(values) > 0 {
		value = values[0]
	}
	if f.Header.Get("_AMQ_OperationSucceeded") == "true" {
		return answer{value: value}
	}
	var said string
	if err := json.Unmarshal(value, &said); err != nil {
		said = string(value)
	}
	return answer{err: &refusedError{said}}
}

// refusedError is what the broker says of a request that it does not follow.
type refusedError struct{ said string }

func (e *refusedError) Error() string { return e.said }

// isRefused says whether the broker's answer to a request was no.
func isRefused(err error) bool {
	_, is := errors.AsType[*refusedError](err)
	return is
}

// alreadyThere says whether what was to be created is there.
func alreadyThere(err error) bool {
	return isRefused(err) && strings.Contains(err.Error(), "AMQ229204")
}

// notThere says whether what was asked about does not exist.
func notThere(err error) bool {
	if !isRefused(err) {
		return false
	}
	for _, said := range []string{"AMQ229012", "AMQ229017", "Problem while retrieving attribute", "Cannot find resource"} {
		if strings.Contains(err.Error(), said) {
			return true
		}
	}
	return false
}

// ask asks all at once and waits for all answers.
func (b *Broker) ask(ctx context.Context, all ...request) ([]answer, error) {
	conn, err := b.desk.link.live()
	if err != nil {
		return nil, err
	}
	return b.desk.askOn(ctx, conn, all...)
}

func (d *desk) askOn(ctx context.Context, conn *connection, all ...request) ([]answer, error) {
	ctx, cancel := context.WithTimeout(ctx, manageWait)
	defer cancel()
	waits, err := d.post(conn, all)
	if err != nil {
		return nil, err
	}
	defer d.forget(waits)
	answers := make([]answer, len(all))
	for i, wait := range waits {
		select {
		case answers[i] = <-wait.answer:
		case <-conn.done:
			return nil, d.link.b.Failed("it was asked about itself", conn.ended())
		case <-ctx.Done():
			return nil, d.link.b.Failed("it was asked about itself, and did not answer", ctx.Err())
		}
	}
	return answers, nil
}

// awaiting is an answer that somebody waits for.
type awaiting struct {
	id     string
	answer chan answer
}

// post sends requests.
func (d *desk) post(conn *connection, all []request) ([]awaiting, error) {
	waits := make([]awaiting, len(all))
	for i, r := range all {
		f, err := operation(r)
		if err != nil {
			d.forget(waits[:i])
			return nil, err
		}
		waits[i] = d.await()
		f.Header.Add("reply-to", d.replyTo())
		f.Header.Add("correlation-id", waits[i].id)
		conn.send(f, nil)
	}
	return waits, nil
}

func (d *desk) await() awaiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	w := awaiting{fmt.Sprintf("%s.%d", d.reply, d.last), make(chan answer, 1)}
	d.calls[w.id] = w.answer
	return w
}

func (d *desk) replyTo() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reply
}

func (d *desk) forget(all []awaiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range all {
		delete(d.calls, w.id)
	}
}

// number is an answer's whole number, 0 for what is not there.
func (a answer) number() (int64, error) {
	if notThere(a.err) {
		return 0, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	var n int64
	err := json.Unmarshal(a.value, &n)
	return n, err
}

// text is an answer's text.
func (a answer) text() (string, error) {
	if a.err != nil {
		return "", a.err
	}
	var text string
	err := json.Unmarshal(a.value, &text)
	return text, err
}
