package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

const (
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerSequence = "Nats-Sequence"
	headerStatus   = "Status"

	errCodeFenced   = 10071 // wrong last sequence, said with the one there is
	errCodeNotFound = 10037 // no message

	errCodeNoResources = 10023 // the server is at its limit
	errCodeNoStorage   = 10047 // the disk is
	errCodeNotStored   = 10077 // the stream is, or writing failed

	// requestTime is how long a request's answer is waited for.
	requestTime = 5 * time.Second
	// readBytes and readFrames bound what one read request brings. A process
	// has maxReads of them under way: a server ends a connection that it has
	// more than 64 MiB for (its max_pending), and all its ledgers with it.
	readBytes  = 16 << 20
	readFrames = 512
	maxReads   = 3
	// maxFrame is the longest frame there is, whatever the server takes.
	maxFrame = 4 << 20
	// frameOverhead is what a published frame takes beside its own bytes.
	frameOverhead = 4 << 10

	// subjectOpened tells that a ledger was opened; its payload is the name.
	subjectOpened = protocol.SubjectEvent + "ledger.opened"
)

// reads are the read requests under way in the process.
var reads = make(chan struct{}, maxReads)

// natsStore is a ledger's store on JetStream.
type natsStore struct {
	conn    *nats.Conn
	stream  string
	ledger  string
	subject string
	post    func(func())
	inbox   string
	subs    []*nats.Subscription

	// Of the ledger's goroutine:
	serial     uint64
	pending    func(uint64, error) // the last publish's; nil when it was answered
	reconnects uint64              // when it was published
}

// Subject is where a ledger's frames are published.
func Subject(service, ledger string) string { return subjectPrefix + service + "." + ledger }

const subjectPrefix = "wb.log."

func newNatsStore(conn *nats.Conn, stream, ledger string, post func(func())) *natsStore {
	return &natsStore{
		conn: conn, stream: stream, ledger: ledger, post: post,
		subject: Subject(serviceOf(ledger), ledger), inbox: conn.NewInbox(),
	}
}

// serviceOf is the part of a ledger's name before its number.
func serviceOf(ledger string) string {
	for i := len(ledger) - 1; i > 0; i-- {
		if ledger[i] == '-' {
			return ledger[:i]
		}
	}
	return ledger
}

// subscribe takes answers to commits, handovers, and news of other ledgers.
func (s *natsStore) subscribe(l *Ledger) error {
	handlers := map[string]nats.MsgHandler{
		s.inbox + ".*":                      s.answer,
		protocol.SubjectHandover + s.ledger: func(m *nats.Msg) { s.handed(l, m) },
		subjectOpened: func(m *nats.Msg) {
			dest := string(m.Data)
			s.post(func() { l.reopened(dest) })
		},
	}
	for subject, h := range handlers {
		sub, err := s.conn.Subscribe(subject, h)
		if err != nil {
			s.unsubscribe()
			return fmt.Errorf("ledger %s: %w", s.ledger, err)
		}
		s.subs = append(s.subs, sub)
		_ = sub.SetPendingLimits(-1, -1) // fails on a closed subscription only
	}
	_ = s.conn.Publish(subjectOpened, []byte(s.ledger)) // a hint: without it others try later
	return nil
}

func (s *natsStore) unsubscribe() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // fails when the connection is closed: then it is gone anyway
	}
}

func (s *natsStore) handed(l *Ledger, m *nats.Msg) {
	s.post(func() {
		l.receive(m.Data, func(answer []byte) { _ = m.Respond(answer) }) // unanswered, it is sent again
	})
}

// message is the only way to write to the log: fenced.
func (s *natsStore) message(expected uint64, frame []byte) *nats.Msg {
	m := nats.NewMsg(s.subject)
	m.Header.Set(headerExpected, strconv.FormatUint(expected, 10))
	m.Data = frame
	return m
}

func (s *natsStore) publish(expected uint64, frame []byte, done func(uint64, error)) {
	s.serial++
	serial := s.serial
	s.pending = done
	s.reconnects = s.conn.Stats().Reconnects
	m := s.message(expected, frame)
	m.Reply = s.inbox + "." + strconv.FormatUint(serial, 10)
	if err := s.conn.PublishMsg(m); err != nil {
		s.post(func() { s.answered(serial, 0, err) })
	}
}

// broken says that the connection is not the one the last commit went out on.
func (s *natsStore) broken() bool {
	return !s.conn.IsConnected() || s.conn.Stats().Reconnects != s.reconnects
}

// answer is called by the connection with the answer to a commit.
func (s *natsStore) answer(m *nats.Msg) {
	serial, err := strconv.ParseUint(m.Subject[len(s.inbox)+1:], 10, 64)
	if err != nil {
		return
	}
	seq, err := parseAck(m)
	s.post(func() { s.answered(serial, seq, err) })
}

// answered is called in the ledger's goroutine. Only the last commit's answer
// is of interest.
func (s *natsStore) answered(serial, seq uint64, err error) {
	if done := s.pending; serial == s.serial && done != nil {
		s.pending = nil
		done(seq, err)
	}
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("JetStream: %s (%d)", e.Description, e.ErrCode) }

// noRoom says whether the log did not take a commit because NATS, its disk or
// the stream is full.
func noRoom(err error) bool {
	code := 0
	if refused, ok := errors.AsType[*apiError](err); ok {
		code = refused.ErrCode
	} else if refused, ok := errors.AsType[*jetstream.APIError](err); ok {
		code = int(refused.ErrorCode)
	}
	switch code {
	case errCodeNoResources, errCodeNoStorage, errCodeNotStored:
		return true
	}
	return false
}

var errNoResponders = errors.New("ledger: no stream takes the frame")

func parseAck(m *nats.Msg) (uint64, error) {
	if m.Header.Get(headerStatus) != "" {
		return 0, errNoResponders
	}
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("ledger: an answer that is none: %w", err)
	}
	if ack.Error != nil {
		if ack.Error.ErrCode == errCodeFenced {
			return 0, fenced(ack.Error)
		}
		return 0, ack.Error
	}
	if ack.Seq == 0 {
		return 0, errors.New("ledger: an answer without a sequence")
	}
	return ack.Seq, nil
}

// fenced reads the sequence out of "wrong last sequence: 42".
func fenced(e *apiError) error {
	_, number, _ := strings.Cut(e.Description, ": ")
	last, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		last = 0
	}
	return &fencedError{last}
}

func (s *natsStore) append(ctx context.Context, expected uint64, frame []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	m, err := s.conn.RequestMsgWithContext(ctx, s.message(expected, frame))
	if err != nil {
		return 0, err
	}
	return parseAck(m)
}

func (s *natsStore) newest(ctx context.Context) (stored, error) {
	newest, err := newestOf(ctx, s.conn, s.stream, s.subject)
	if err != nil || newest.seq > 0 {
		return newest, err
	}
	// One that is damaged is not found either, but counted.
	info, err := streamInfo(ctx, s.conn, s.stream, s.subject)
	if err == nil && len(info.Subjects) > 0 {
		err = errUnreadable
	}
	return stored{}, err
}

func (s *natsStore) missing(ctx context.Context, after uint64) ([]uint64, error) {
	var wait backoff
	for {
		info, err := streamInfo(ctx, s.conn, s.stream, s.subject)
		if err == nil {
			gone := slices.DeleteFunc(info.Deleted, func(seq uint64) bool { return seq <= after })
			if after == 0 && info.First > 1 {
				gone = slices.Insert(gone, 0, info.First-1)
			}
			return gone, nil
		}
		if err := s.sleep(ctx, wait.next()); err != nil {
			return nil, err
		}
	}
}

// streamState is the part of a stream's information that is of use here.
type streamState struct {
	Messages int64             `json:"messages"` // frames
	Bytes    int64             `json:"bytes"`
	First    uint64            `json:"first_seq"`
	Last     uint64            `json:"last_seq"`
	Deleted  []uint64          `json:"deleted"`
	Subjects map[string]uint64 `json:"subjects"` // messages of each
}

// streamInfo is what the stream's leader knows of it, and of the subjects that
// filter matches.
func streamInfo(ctx context.Context, conn *nats.Conn, stream, filter string) (streamState, error) {
	var info struct {
		State streamState `json:"state"`
	}
	err := api(ctx, conn, "STREAM.INFO."+stream, map[string]any{"subjects_filter": filter, "deleted_details": true}, &info)
	return info.State, err
}

// api makes a request of JetStream's API.
func api(ctx context.Context, conn *nats.Conn, verb string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	m, err := conn.RequestWithContext(ctx, "$JS.API."+verb, data)
	if err != nil {
		return err
	}
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	return json.Unmarshal(m.Data, answer)
}

// newestOf asks the stream's leader for a subject's newest frame; its sequence
// is 0 when there is none.
func newestOf(ctx context.Context, conn *nats.Conn, stream, subject string) (stored, error) {
	var got struct {
		Message struct {
			Seq  uint64 `json:"seq"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	err := api(ctx, conn, "STREAM.MSG.GET."+stream, map[string]any{"last_by_subj": subject}, &got)
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case ok && refused.ErrCode == errCodeNotFound:
		return stored{}, nil
	case err != nil:
		return stored{}, err
	case got.Message.Seq == 0:
		return stored{}, errors.New("ledger: an answer without a message")
	}
	return stored{got.Message.Seq, got.Message.Data}, nil
}

// read asks again for ever when the server does not answer; only ctx ends it.
func (s *natsStore) read(ctx context.Context, from uint64, n int, f func(stored) bool) error {
	var wait backoff
	for n > 0 {
		took, last, err := s.readSome(ctx, from, min(n, readFrames), f)
		if err == nil && (took == 0 || last == 0) {
			return nil
		}
		if took > 0 {
			from, n, wait = last+1, n-took, backoff{}
		}
		if err != nil {
			if err := s.sleep(ctx, wait.next()); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSome makes one request. last is the sequence of the last frame it brought;
// 0 when f wants no more.
func (s *natsStore) readSome(ctx context.Context, from uint64, n int, f func(stored) bool) (took int, last uint64, err error) {
	select {
	case reads <- struct{}{}:
		defer func() { <-reads }()
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	sub, err := s.conn.SubscribeSync(s.conn.NewInbox())
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed only
	_ = sub.SetPendingLimits(-1, -1)
	request := fmt.Sprintf(`{"seq":%d,"batch":%d,"max_bytes":%d,"next_by_subj":%q}`, from, n, readBytes, s.subject)
	if err := s.conn.PublishRequest("$JS.API.DIRECT.GET."+s.stream, sub.Subject, []byte(request)); err != nil {
		return 0, 0, err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return took, last, err
		}
		switch status := m.Header.Get(headerStatus); {
		case status == "204" || status == "404":
			return took, last, nil
		case status != "":
			return took, last, fmt.Errorf("ledger: reading the log: %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
		if err != nil {
			return took, last, err
		}
		took, last = took+1, seq
		if !f(stored{seq, m.Data}) {
			return took, 0, nil
		}
	}
}

func (s *natsStore) offer(ctx context.Context, dest string, batch []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	m, err := s.conn.RequestWithContext(ctx, protocol.SubjectHandover+dest, batch)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (s *natsStore) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func (s *natsStore) maxFrame() int {
	return min(maxFrame, int(s.conn.MaxPayload())-frameOverhead)
}
