package mesh

import (
	"encoding/json"
	"errors"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

var (
	semver     = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	notInBuild = regexp.MustCompile(`[^0-9A-Za-z-]+`)
)

// discoverable answers NATS micro's three questions, each asked of everybody,
// of the services of a name, and of one instance.
func (s *Service) discoverable() error {
	answers := map[micro.Verb]func() any{
		micro.PingVerb:  func() any { return micro.Ping{ServiceIdentity: s.identity(), Type: micro.PingResponseType} },
		micro.InfoVerb:  func() any { return s.info() },
		micro.StatsVerb: func() any { return s.stats() },
	}
	for verb, answer := range answers {
		for _, who := range [][2]string{{"", ""}, {s.identity().Name, ""}, {s.identity().Name, s.id}} {
			subject, err := micro.ControlSubject(verb, who[0], who[1])
			if err != nil {
				return err
			}
			e := &Subscription{name: verb.String(), subject: subject}
			if err := s.subscribe(e, &s.verbs, func(m *nats.Msg) { s.respondJSON(m, answer()) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) identity() micro.ServiceIdentity {
	return micro.ServiceIdentity{
		Name: "waybill-" + s.o.Name, ID: s.id, Version: s.o.Version,
		Metadata: map[string]string{"instance": s.o.Instance},
	}
}

func (s *Service) info() micro.Info {
	info := micro.Info{
		ServiceIdentity: s.identity(), Type: micro.InfoResponseType,
		Description: "Waybill's " + s.o.Name + " service", Endpoints: []micro.EndpointInfo{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.subs {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: e.name, Subject: e.subject, QueueGroup: e.queue})
	}
	return info
}

func (s *Service) stats() micro.Stats {
	stats := micro.Stats{
		ServiceIdentity: s.identity(), Type: micro.StatsResponseType,
		Started: s.started, Endpoints: []*micro.EndpointStats{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.subs {
		stats.Endpoints = append(stats.Endpoints, e.counts.stats(e))
	}
	return stats
}

// counts are an endpoint's numbers for micro tools.
type counts struct {
	requests, errors, busy atomic.Int64
	lastError              atomic.Pointer[string]
}

func (c *counts) failed(err error) {
	text := err.Error()
	c.errors.Add(1)
	c.lastError.Store(&text)
}

func (c *counts) stats(e *Subscription) *micro.EndpointStats {
	st := &micro.EndpointStats{
		Name: e.name, Subject: e.subject, QueueGroup: e.queue,
		NumRequests: int(c.requests.Load()), NumErrors: int(c.errors.Load()),
		ProcessingTime: time.Duration(c.busy.Load()),
	}
	if st.NumRequests > 0 {
		st.AverageProcessingTime = st.ProcessingTime / time.Duration(st.NumRequests)
	}
	if text := c.lastError.Load(); text != nil {
		st.LastError = *text
	}
	return st
}

// counted counts the calls of h. It does not time them: at a hundred thousand
// a second that would cost more than it tells.
func (e *Subscription) counted(h nats.MsgHandler) nats.MsgHandler {
	return func(m *nats.Msg) {
		e.counts.requests.Add(1)
		h(m)
	}
}

// respondJSON answers m. An answer that NATS cannot carry is PAYLOAD_TOO_LARGE;
// one that cannot be sent has nobody to be told: the asker's own deadline tells
// it.
func (s *Service) respondJSON(m *nats.Msg, answer any) {
	body, err := json.Marshal(answer)
	if err == nil {
		err = m.Respond(body)
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		err = m.RespondMsg(ErrorAnswer(protocol.Errorf(protocol.CodePayloadTooLarge,
			"the answer takes %d bytes, more than this NATS carries (%d): ask for less, or raise its max_payload", len(body), s.nc.MaxPayload())))
	}
	if err != nil {
		s.o.Logger.Debug("an answer could not be sent", "subject", m.Subject, "error", err)
	}
}
