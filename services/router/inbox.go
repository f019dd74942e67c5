package router

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// What lanes and the presence watch ask others for. The answers arrive on one
// subscription of the service, whose subjects say who asked and what:
// <inbox>.<what>.<lane or worker>.<detail>. "No responders" arrives there too.
const (
	askVerdicts = "verdicts" // detail: the question's number
	askClaims   = "claims"   // detail: <when asked>-<worker id>
	askLetters  = "letters"  // detail: the question's number
	askProbe    = "probe"    // no lane: the worker id
)

// inbox is the reply subject of a lane's question.
func (l *lane) inbox(what string, number uint64) string {
	return l.s.inbox + "." + what + "." + l.slot.name + "." + strconv.FormatUint(number, 10)
}

func (l *lane) claimsInbox(w *worker) string {
	return l.s.inbox + "." + askClaims + "." + l.slot.name + "." + strconv.FormatInt(l.now, 10) + "-" + w.id
}

// ask publishes a question; the answer, if any, comes to the inbox.
func (s *Service) ask(subject, reply string, q any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return s.bulk.PublishRequest(subject, reply, body)
}

// answer brings an answer to who asked.
func (s *Service) answer(m *nats.Msg) {
	what, rest, _ := strings.Cut(m.Subject[len(s.inbox)+1:], ".")
	who, detail, _ := strings.Cut(rest, ".")
	switch what {
	case askOwner:
		s.found(s.slot(who), m)
	case askProbe:
		s.presence.answered(who, m)
	case askVerdicts:
		if number, err := strconv.ParseUint(detail, 10, 64); err == nil {
			s.slot(who).send(call(func(l *lane) { l.verdicts.answered(l, number, m) }))
		}
	case askLetters:
		if number, err := strconv.ParseUint(detail, 10, 64); err == nil {
			s.slot(who).send(call(func(l *lane) { l.blocks.answered(l, number, m) }))
		}
	case askClaims:
		when, worker, _ := strings.Cut(detail, "-")
		if asked, err := strconv.ParseInt(when, 10, 64); err == nil {
			s.slot(who).send(call(func(l *lane) { l.claimed(worker, asked, m) }))
		}
	}
}
